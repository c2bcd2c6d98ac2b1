package org.pocketbert.app;

import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.content.Context;
import android.content.ContextWrapper;
import java.io.File;
import java.nio.file.Files;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.pocketbert.UserError;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.annotation.Config;

@RunWith(RobolectricTestRunner.class)
@Config(sdk = {28, 35})
public class AppFoldersTest {
  private final Context context = RuntimeEnvironment.getApplication();

  @Test
  public void foldersAreCreatedAtStart() {
    AppFolders folders = new AppFolders(context);
    // On a phone it is …/org.pocketbert.benchmark/files/bundles.
    assertTrue(folders.bundles.toString(), folders.bundles.endsWith("org.pocketbert.benchmark/bundles"));
    assertTrue(Files.isDirectory(folders.bundles));
    assertTrue(Files.isDirectory(folders.results));
    assertTrue(folders.store.list().isEmpty());
  }

  @Test
  public void noStorageIsASentence() {
    Context without = new ContextWrapper(context) {
      @Override
      public File getExternalFilesDir(String type) {
        return null;
      }
    };
    UserError error = assertThrows(UserError.class, () -> new AppFolders(without));
    assertTrue(error.getMessage(), error.getMessage().contains("Restart the phone"));
  }
}
