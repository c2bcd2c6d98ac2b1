package org.pocketbert.app;

import android.content.Context;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.pocketbert.UserError;
import org.pocketbert.device.BundleStore;

/** The app's folders for bundles and results. Android removes them with the app. */
final class AppFolders {
  private static final String BUNDLES = "bundles";

  /** Bundles from your computer. */
  final Path bundles;

  /** Result files. */
  final Path results;

  /** All bundles, including those in the APK. */
  final BundleStore store;

  /**
   * Creates the folders.
   *
   * @throws UserError if the phone's storage is unavailable or full
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
          "the app cannot write its files (" + error.getMessage() + "); free storage on the phone");
    }
  }

  /** Unpacks the bundles in the APK, because the runtime maps files. */
  private static Path shipped(Context context) throws IOException {
    // Android clears this folder when the app is updated.
    Path folder = context.getCodeCacheDir().toPath().resolve("shipped");
    Path complete = folder.resolve(".complete");
    if (!Files.exists(complete)) {
      BundleStore.unpack(context.getApplicationInfo().sourceDir, "assets/" + BUNDLES, folder);
      Files.createDirectories(complete);
    }
    return folder;
  }
}
