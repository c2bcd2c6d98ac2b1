package org.pocketbert.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import android.Manifest;
import android.content.Context;
import android.content.pm.ActivityInfo;
import android.content.pm.ApplicationInfo;
import android.content.pm.PackageInfo;
import android.content.pm.PackageManager;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.annotation.Config;

/** Permissions and exported activities, as the phone reads them. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = {28, 35})
public class ManifestTest {
  @Test
  public void onlyAdbCanStartAMeasurement() throws Exception {
    Context context = RuntimeEnvironment.getApplication();
    int what =
        PackageManager.GET_ACTIVITIES | PackageManager.GET_PERMISSIONS | PackageManager.GET_SERVICES
            | PackageManager.GET_RECEIVERS | PackageManager.GET_PROVIDERS;
    PackageInfo app = context.getPackageManager().getPackageInfo("org.pocketbert.benchmark", what);
    assertNull(app.requestedPermissions);
    assertNull(app.services);
    assertNull(app.receivers);
    assertNull(app.providers);
    assertEquals(2, app.activities.length);
    for (ActivityInfo activity : app.activities) {
      boolean measures = activity.name.equals("org.pocketbert.app.BenchmarkActivity");
      assertEquals(measures ? Manifest.permission.DUMP : null, activity.permission);
      assertEquals("org.pocketbert.benchmark" + (measures ? ":measure" : ""), activity.processName);
      assertTrue(activity.exported);
    }
    int flags = app.applicationInfo.flags;
    assertEquals(0, flags & (ApplicationInfo.FLAG_ALLOW_BACKUP | ApplicationInfo.FLAG_DEBUGGABLE));
  }
}
