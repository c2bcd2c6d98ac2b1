package org.pocketbert.bundle;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import org.pocketbert.UserError;

/**
 * The members of a zip archive: its root's, or those of the one folder with {@code bundle.json}.
 *
 * <p>It reads the archive once from its start, since a stream from an app's assets cannot go back.
 */
final class ZipFiles extends BundleFiles {
  private static final long MOST_BYTES = 1L << 30;
  private static final int MOST_MEMBERS = 1000;
  // An archive may claim any size; more memory follows only with the bytes.
  private static final int MOST_BYTES_AT_FIRST = 1 << 24;
  private static final int BYTES_A_READ = 1 << 16;

  private final Map<String, ByteBuffer> members = new LinkedHashMap<>();

  /**
   * Reads an archive.
   *
   * @param stream read to the archive's last member, and closed
   * @throws UserError if it is damaged or too large, a name is outside the folder or repeated, or no folder or several
   *     have a {@code bundle.json}
   */
  ZipFiles(InputStream stream, String name, String source) {
    super(name, source);
    Map<String, ByteBuffer> contents = new LinkedHashMap<>();
    long bytes = 0;
    try (ZipInputStream archive = new ZipInputStream(stream)) {
      for (ZipEntry entry = next(archive); entry != null; entry = next(archive)) {
        if (entry.isDirectory()) {
          continue;
        }
        String member = entry.getName();
        if (!isInside(member)) {
          throw new UserError(
              source + ": names must stay in the bundle's folder; received " + Description.shown(member)
                  + "; pack the folder again");
        }
        ByteBuffer content = content(archive, entry.getSize(), MOST_BYTES - bytes);
        bytes += content.remaining();
        if (contents.put(member, content) != null) {
          throw new UserError(
              source + ": names must differ; received " + Description.shown(member) + " twice; pack the folder again");
        }
        if (contents.size() > MOST_MEMBERS) {
          throw tooLarge();
        }
      }
    } catch (IOException error) {
      throw damaged(error.getMessage());
    }
    if (contents.isEmpty()) {
      throw damaged("no file in it");
    }
    String folder = folder(contents);
    for (Map.Entry<String, ByteBuffer> content : contents.entrySet()) {
      if (content.getKey().startsWith(folder)) {
        members.put(content.getKey().substring(folder.length()), content.getValue());
      }
    }
  }

  private static ZipEntry next(ZipInputStream archive) throws IOException {
    try {
      return archive.getNextEntry();
    } catch (IllegalArgumentException error) {
      // Thrown by Java for a name that is not UTF-8.
      throw new IOException("a name that is not UTF-8", error);
    }
  }

  /** Whether a member's name stays in the archive's folder on every system. */
  private static boolean isInside(String member) {
    boolean rises = Arrays.asList(member.split("/")).contains("..");
    return !(member.startsWith("/") || member.indexOf('\\') >= 0 || member.indexOf(':') >= 0 || rises);
  }

  /** Returns a member's bytes; {@code claimed} is their number by the archive, or -1. */
  private ByteBuffer content(InputStream member, long claimed, long mostBytes) throws IOException {
    int expected = (int) Math.min(claimed, mostBytes);
    ByteBuffer content =
        ByteBuffer.allocateDirect(expected < 0 ? BYTES_A_READ : Math.min(expected, MOST_BYTES_AT_FIRST));
    byte[] part = new byte[BYTES_A_READ];
    for (int count = member.read(part); count >= 0; count = member.read(part)) {
      if (content.position() + count > mostBytes) {
        throw tooLarge();
      }
      if (count > content.remaining()) {
        int needed = content.position() + count;
        long doubled = Math.min(Math.max(2L * content.capacity(), needed), mostBytes);
        ByteBuffer larger = ByteBuffer.allocateDirect(expected >= needed ? expected : (int) doubled);
        content.flip();
        content = larger.put(content);
      }
      content.put(part, 0, count);
    }
    content.flip();
    return content.asReadOnlyBuffer();
  }

  private String folder(Map<String, ByteBuffer> contents) {
    String folder = null;
    int folders = 0;
    for (String member : contents.keySet()) {
      if (member.equals(Bundle.DESCRIPTION) || member.endsWith("/" + Bundle.DESCRIPTION)) {
        folder = member.substring(0, member.length() - Bundle.DESCRIPTION.length());
        folders++;
      }
    }
    if (folders != 1) {
      throw new UserError(
          source + " must have one " + Bundle.DESCRIPTION + ", written by pocketbert export; it has " + folders
              + "; pack the bundle's folder alone");
    }
    return folder;
  }

  private UserError damaged(String reason) {
    return new UserError(source + " must be a complete zip file; received: " + reason + "; copy it again");
  }

  private UserError tooLarge() {
    return new UserError(
        source + " must have at most " + MOST_MEMBERS + " files and " + MOST_BYTES
            + " bytes when it is unpacked; it has more; pack the bundle's folder alone");
  }

  @Override
  long size(String file) throws CheckedFile.Unusable {
    return member(file).remaining();
  }

  @Override
  ByteBuffer read(String file, long mostBytes) throws CheckedFile.Unusable {
    ByteBuffer content = member(file);
    CheckedFile.checkSize(content.remaining(), mostBytes);
    return content.duplicate();
  }

  private ByteBuffer member(String file) throws CheckedFile.Unusable {
    ByteBuffer content = members.get(file);
    if (content == null) {
      throw new CheckedFile.Unusable("must be there; it is missing");
    }
    return content;
  }
}
