package org.pocketbert.device;

import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Bundle;

/**
 * The bundles on a phone, in folders where others can write. Before use, a bundle is copied to private storage, and the
 * copy is checked.
 */
public final class BundleStore {
  private final List<Path> sources;
  private final Path ownFolder;

  /** A bundle in a list. */
  public static final class Entry {
    /** The folder's name. */
    public final String name;

    /** The lengths in bundle.json; empty if there is a problem. */
    public final int[] lengths;

    /** Why it is unusable; null if no problem is known. */
    public final String problem;

    /** The task in bundle.json; null without a task or with a problem. */
    public final String taskKind;

    private Entry(String name, int[] lengths, String taskKind, String problem) {
      this.name = name;
      this.lengths = lengths;
      this.taskKind = taskKind;
      this.problem = problem;
    }
  }

  /**
   * Creates a store.
   *
   * @param ownFolder private storage; its content may be removed
   * @param sources folders with bundles; they may be missing. If two have the same name, the first one wins
   */
  public BundleStore(Path ownFolder, Path... sources) {
    this.ownFolder = ownFolder;
    this.sources = Arrays.asList(sources);
  }

  /**
   * Writes the bundles inside a zip file (such as an APK) to a folder.
   *
   * @param zip the file
   * @param from folder in the file, with one folder per bundle
   * @param to the target; it may be missing. Existing files are replaced
   */
  public static void unpack(String zip, String from, Path to) throws IOException {
    Pattern pattern = Pattern.compile(Pattern.quote(from) + "/(" + RunRequest.NAME + ")/(" + RunRequest.NAME + ")");
    try (ZipFile content = new ZipFile(zip)) {
      for (ZipEntry entry : Collections.list(content.entries())) {
        Matcher names = pattern.matcher(entry.getName());
        if (names.matches()) {
          Path folder = Files.createDirectories(to.resolve(names.group(1)));
          try (InputStream file = content.getInputStream(entry)) {
            Files.copy(file, folder.resolve(names.group(2)), StandardCopyOption.REPLACE_EXISTING);
          }
        }
      }
    }
  }

  /** All bundles by name. */
  public List<Entry> list() {
    SortedMap<String, Entry> entries = new TreeMap<>();
    for (Path source : sources) {
      for (Path bundle : folders(source)) {
        String name = bundle.getFileName().toString();
        if (!entries.containsKey(name)) {
          entries.put(name, entry(name, bundle));
        }
      }
    }
    return new ArrayList<>(entries.values());
  }

  /**
   * Copies a bundle, replacing the previous copy, and opens it.
   *
   * @throws UserError if there is no bundle with this name, a file is missing or damaged, or storage is full
   */
  public Bundle take(String name) {
    for (Path source : sources) {
      // Check the name first: it must not leave the folder.
      if (RunRequest.NAME.matcher(name).matches() && isFolder(source.resolve(name))) {
        Path copy = ownFolder.resolve(name);
        try {
          copy(source.resolve(name), copy);
          return Bundle.open(copy);
        } catch (UserError error) {
          throw new UserError(plain(error, copy, name));
        }
      }
    }
    List<String> names = new ArrayList<>();
    for (Entry entry : list()) {
      names.add(entry.name);
    }
    throw new UserError(
        "a bundle must be one of those on this phone (" + (names.isEmpty() ? "there is none" : String.join(", ", names))
            + "); received " + name);
  }

  private static Entry entry(String name, Path bundle) {
    try {
      Bundle.Summary summary = Bundle.summary(bundle);
      return new Entry(name, summary.lengths, summary.taskKind, null);
    } catch (UserError error) {
      return new Entry(name, new int[0], null, plain(error, bundle, name));
    } catch (RuntimeException | OutOfMemoryError | StackOverflowError error) {
      // One bad folder must not hide the others.
      return new Entry(name, new int[0], null, "bundle " + name + " must be readable; received " + error + "; remove it");
    }
  }

  /** Replaces the app's private path by the bundle's name, which people know. */
  private static String plain(UserError error, Path folder, String name) {
    return error.getMessage().replace(folder.toString(), name);
  }

  private void copy(Path from, Path to) {
    Map<String, Long> sizes;
    try {
      sizes = Bundle.listedFiles(from);
    } catch (UserError error) {
      throw new UserError(plain(error, from, from.getFileName().toString()));
    }
    try {
      for (Path old : folders(ownFolder)) {
        remove(old);
      }
      Files.createDirectories(to);
      for (Map.Entry<String, Long> file : sizes.entrySet()) {
        copy(from.resolve(file.getKey()), to.resolve(file.getKey()), file.getValue());
      }
    } catch (IOException error) {
      throw new UserError(
          "bundle " + from.getFileName() + " cannot be copied (" + error.getMessage()
              + "); free storage on the phone, or push it again");
    }
  }

  /** Copies at most {@code size} bytes, because the file may have changed. */
  private static void copy(Path from, Path to, long size) throws IOException {
    try (FileChannel source = FileChannel.open(from, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
        FileChannel target = FileChannel.open(to, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
      long copied = 0;
      long more = 1;
      while (copied < size && more > 0) {
        more = source.transferTo(copied, size - copied, target);
        copied += more;
      }
    }
  }

  private static void remove(Path folder) throws IOException {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
      for (Path file : files) {
        Files.delete(file);
      }
    }
    Files.delete(folder);
  }

  private static List<Path> folders(Path parent) {
    List<Path> folders = new ArrayList<>();
    try (DirectoryStream<Path> children = Files.newDirectoryStream(parent)) {
      for (Path child : children) {
        if (isFolder(child) && RunRequest.NAME.matcher(child.getFileName().toString()).matches()) {
          folders.add(child);
        }
      }
    } catch (IOException error) {
      // A missing folder has no bundles.
      return folders;
    }
    return folders;
  }

  private static boolean isFolder(Path path) {
    return Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS);
  }
}
