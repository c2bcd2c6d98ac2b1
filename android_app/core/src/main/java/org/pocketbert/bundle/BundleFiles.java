package org.pocketbert.bundle;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.pocketbert.UserError;

/** The files of a bundle: in a folder, or in a zip archive, whose members are read into memory. */
abstract class BundleFiles {
  /** The name of the folder or the archive. */
  final String name;

  /** Its path; for an archive without one, a word for messages. */
  final String source;

  BundleFiles(String name, String source) {
    this.name = name;
    this.source = source;
  }

  /**
   * Returns the size of a file in bytes.
   *
   * @throws CheckedFile.Unusable if it is absent or not an ordinary file
   */
  abstract long size(String file) throws CheckedFile.Unusable;

  /**
   * Returns the bytes of a file in a direct buffer, read-only.
   *
   * @param mostBytes the largest allowed size
   * @throws CheckedFile.Unusable if it is absent, not an ordinary file, too large or cannot be read
   */
  abstract ByteBuffer read(String file, long mostBytes) throws CheckedFile.Unusable;

  /**
   * Opens a folder, or a zip file of one.
   *
   * @throws UserError if it is neither; see also {@link ZipFiles}
   */
  static BundleFiles of(Path path) {
    if (!Files.isRegularFile(path)) {
      return folder(path);
    }
    try (InputStream stream = Files.newInputStream(path)) {
      return new ZipFiles(stream, path.getFileName().toString(), path.toString());
    } catch (IOException error) {
      throw new UserError(path + " must be readable; received " + error.getMessage());
    }
  }

  /**
   * Opens a folder.
   *
   * @throws UserError if it is missing
   */
  static BundleFiles folder(Path path) {
    try {
      return new Folder(path.toRealPath(), path.toString());
    } catch (IOException error) {
      throw new UserError(
          "a bundle must be a folder written by pocketbert export, or a zip file of one; received " + path);
    }
  }

  private static final class Folder extends BundleFiles {
    private final Path directory;

    Folder(Path directory, String source) {
      super(directory.getFileName().toString(), source);
      this.directory = directory;
    }

    @Override
    long size(String file) throws CheckedFile.Unusable {
      return CheckedFile.size(directory, file);
    }

    @Override
    ByteBuffer read(String file, long mostBytes) throws CheckedFile.Unusable {
      return CheckedFile.map(directory, file, mostBytes);
    }
  }
}
