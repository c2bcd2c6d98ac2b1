package org.pocketbert.app;

import android.content.Context;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.pocketbert.UserError;
import org.pocketbert.device.BundleStore;

/** Where the app keeps what it takes in and gives out; all of it goes when the app is removed. */
final class AppFolders {
  private static final String BUNDLES = "bundles";

  /** What a computer pushes. */
  final Path bundles;

  /** What a computer pulls. */
  final Path results;

  /** All bundles, those that came with the app too. */
  final BundleStore store;

  /**
   * Makes the folders.
   *
   * @throws UserError if the phone's storage is not there or full
   */
  AppFolders(Context context) {
    File shared = context.getExternalFilesDir(null);
    if (shared == null) {
      throw new UserError(context.getString(R.string.no_storage));
    }
    bundles = shared.toPath().resolve(BUNDLES);
    results = shared.toPath().resolve("results");
    Path own = context.getNoBackupFilesDir().toPath();
    try {
      Files.createDirectories(bundles);
      Files.createDirectories(results);
      store = new BundleStore(own.resolve("in_use"), bundles, shipped(context));
    } catch (IOException error) {
      throw new UserError(
          "the app must be able to write its files, which failed (" + error.getMessage() + "); make room on the phone");
    }
  }

  /** The bundles of the app itself as files: the runtime maps files. */
  private static Path shipped(Context context) throws IOException {
    // Android empties this folder when the app is updated.
    Path folder = context.getCodeCacheDir().toPath().resolve("shipped");
    Path complete = folder.resolve(".complete");
    if (!Files.exists(complete)) {
      BundleStore.unpack(context.getApplicationInfo().sourceDir, "assets/" + BUNDLES, folder);
      Files.createDirectories(complete);
    }
    return folder;
  }
}
