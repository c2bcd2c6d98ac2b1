package org.pocketbert.bundle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.regex.Pattern;

/** Reads untrusted files: plain names, no links, bounded sizes, digests of the bytes in memory. */
final class CheckedFile {
  /** Letters, digits, dot, dash and underscore, without a leading dot. Such a name cannot leave its folder. */
  static final Pattern PLAIN_NAME = Pattern.compile("[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}");

  private CheckedFile() {}

  /** A problem with a file; the message continues a sentence that starts with its name. */
  static final class Unusable extends Exception {
    private static final long serialVersionUID = 1;

    Unusable(String message) {
      super(message);
    }
  }

  /**
   * Returns the size of a file without opening it.
   *
   * @param folder a canonical path
   * @param name of the file in the folder
   * @throws Unusable if it is absent or not an ordinary file
   */
  static long size(Path folder, String name) throws Unusable {
    if (!PLAIN_NAME.matcher(name).matches()) {
      throw new Unusable("must be a plain file name");
    }
    try {
      BasicFileAttributes attributes =
          Files.readAttributes(folder.resolve(name), BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
      if (!attributes.isRegularFile()) {
        throw new Unusable("must be an ordinary file; it is a link, a folder or something else");
      }
      return attributes.size();
    } catch (NoSuchFileException error) {
      throw new Unusable("must be there; it is missing");
    } catch (IOException error) {
      throw new Unusable("must be readable; received " + error.getMessage());
    }
  }

  /**
   * Maps a file.
   *
   * @param folder a canonical path
   * @param name of the file in the folder
   * @param mostBytes the largest allowed size
   * @return its bytes, read-only and not copied
   * @throws Unusable if it is absent, not an ordinary file, too large or cannot be read
   */
  static ByteBuffer map(Path folder, String name, long mostBytes) throws Unusable {
    size(folder, name);
    // Do not follow links here either: the name may now be another file.
    try (FileChannel channel =
        FileChannel.open(folder.resolve(name), StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
      long size = channel.size();
      checkSize(size, mostBytes);
      return channel.map(FileChannel.MapMode.READ_ONLY, 0, size);
    } catch (IOException error) {
      throw new Unusable("must be readable; received " + error.getMessage());
    }
  }

  /** Throws if a file is too large; sizes in bytes. */
  static void checkSize(long size, long mostBytes) throws Unusable {
    if (size > mostBytes) {
      throw new Unusable("must have at most " + mostBytes + " bytes; it has " + size);
    }
  }

  /** Copies the bytes of a buffer. */
  static byte[] bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }

  /** Decodes a buffer as UTF-8; invalid bytes become U+FFFD. */
  static String text(ByteBuffer buffer) {
    return StandardCharsets.UTF_8.decode(buffer.duplicate()).toString();
  }
}
