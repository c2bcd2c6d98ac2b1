package org.pocketbert.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.Intent;
import android.os.Bundle;
import android.os.PowerManager;
import android.os.Process;
import android.view.WindowManager;
import android.window.WindowOnBackInvokedDispatcher;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.pocketbert.json.Json;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowProcess;
import org.robolectric.util.ReflectionHelpers;

/** Runs the activity as adb's shell does, up to the result file, with a real network and the computer's kernels. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35)
public class BenchmarkActivityTest {
  private static Intent intent(String run) {
    Intent intent = new Intent(RuntimeEnvironment.getApplication(), BenchmarkActivity.class);
    return intent.putExtra("run", run).putExtra("bundle", "tiny").putExtra("length", 17).putExtra("threads", 1);
  }

  private static ActivityController<BenchmarkActivity> start(Intent intent) {
    return Robolectric.buildActivity(BenchmarkActivity.class, intent).setup().windowFocusChanged(true);
  }

  /** Waits for the end and returns the last line. */
  private static Map<?, ?> end(ActivityController<BenchmarkActivity> controller) throws InterruptedException {
    Phone.await(() -> controller.get().isFinishing());
    List<Map<?, ?>> lines = Phone.lines();
    return lines.get(lines.size() - 1);
  }

  private static Map<?, ?> run(Intent intent) throws InterruptedException {
    return end(start(intent));
  }

  private static void assertRefused(Intent intent, String reason) throws InterruptedException {
    Map<?, ?> last = run(intent);
    assertEquals("refused", last.get("state"));
    assertTrue((String) last.get("reason"), ((String) last.get("reason")).contains(reason));
    assertNull(last.get("result"));
  }

  private static Map<?, ?> measurement(String name) throws IOException {
    byte[] bytes = Files.readAllBytes(Phone.files().resolve("results").resolve(name));
    Map<?, ?> file = (Map<?, ?>) Json.parse(new String(bytes, StandardCharsets.UTF_8));
    return (Map<?, ?>) ((List<?>) file.get("measurements")).get(0);
  }

  private void measuresARealBundle(String resultName) throws Exception {
    Phone.push("tiny");
    ActivityController<BenchmarkActivity> controller = start(intent("first").putExtra("repeat", 2));
    int flags = controller.get().getWindow().getAttributes().flags;
    assertTrue((flags & WindowManager.LayoutParams.FLAG_KEEP_SCREEN_ON) != 0);
    Map<?, ?> last = end(controller);
    assertEquals(last.toString(), "done", last.get("state"));
    assertEquals("first.json", last.get("result"));
    assertEquals("started", Phone.lines().get(0).get("state"));
    for (String state : new String[] {"checking", "warming_up", "measuring"}) {
      assertTrue(state, Phone.lines().stream().anyMatch(line -> line.get("state").equals(state)));
    }
    Map<?, ?> measurement = measurement("first.json");
    assertEquals("ok", measurement.get("status"));
    assertEquals("XNNPACK", ((Map<?, ?>) measurement.get("delegate")).get("name"));
    assertEquals(2L, ((Map<?, ?>) measurement.get("device")).get("repeat"));
    assertEquals("first.json", shadowOf(controller.get()).getResultIntent().getStringExtra(BenchmarkActivity.RESULT));
    assertFalse(ShadowProcess.wasKilled(Process.myPid()));
    controller.pause().stop().destroy();
    assertTrue(ShadowProcess.wasKilled(Process.myPid()));
    // Python checks it with the schema after these tests.
    Path copy = Paths.get(System.getProperty("pocketbert.results")).resolve(resultName);
    Files.createDirectories(copy.getParent());
    Files.copy(Phone.files().resolve("results/first.json"), copy, StandardCopyOption.REPLACE_EXISTING);
  }

  @Test
  public void measuresARealBundle() throws Exception {
    measuresARealBundle("api_35.json");
    Map<?, ?> thermal = (Map<?, ?>) measurement("first.json").get("thermal_end");
    assertEquals("none", thermal.get("status"));
  }

  @Test
  @Config(sdk = 28)
  public void measuresARealBundleOnAndroid9() throws Exception {
    measuresARealBundle("api_28.json");
    Map<?, ?> thermal = (Map<?, ?>) measurement("first.json").get("thermal_end");
    assertEquals("unknown", thermal.get("status"));
  }

  @Test
  public void invalidRequestsAreRefused() throws Exception {
    Phone.push("tiny");
    assertRefused(intent("r").putExtra("length", "17"), "length must be a whole number");
    assertEquals("r", Phone.lines().get(0).get("run"));
    assertRefused(intent("r").putExtra("surplus", 1), "received surplus");
    assertRefused(intent("r").putExtra("delegate", "gpu"), "delegate must be cpu in this build of the app");
    assertRefused(intent("r").putExtra("affinity", "big"), "affinity must be any");
    assertRefused(intent("r").putExtra("weight_cache", "on"), "weight_cache must be off in this build of the app");
    assertRefused(intent("r").putExtra("length", 16), "a length must be one of [9, 17]; received 16");
    assertRefused(intent("r").putExtra("bundle", "huge"), "on this phone (tiny); received huge");
    assertRefused(new Intent(RuntimeEnvironment.getApplication(), BenchmarkActivity.class), "run must be");
    assertNull(Phone.lines().get(Phone.lines().size() - 1).get("run"));
    assertEquals(0, Phone.files().resolve("results").toFile().list().length);
  }

  @Test
  public void aBrokenBundleIsRefused() throws Exception {
    Path bundle = Phone.push("tiny");
    byte[] model = Files.readAllBytes(bundle.resolve("model.tflite"));
    model[model.length / 2] ^= 1;
    Files.write(bundle.resolve("model.tflite"), model);
    assertRefused(intent("r"), "bundle tiny: model.tflite must have the sha256");
    Files.delete(bundle.resolve("vocab.txt"));
    assertRefused(intent("r"), "vocab.txt must be there; it is missing");
  }

  @Test
  public void aResultIsNotOverwritten() throws Exception {
    Phone.push("tiny");
    Path path = Files.createDirectories(Phone.files().resolve("results")).resolve("r.json");
    Files.write(path, new byte[] {'x'});
    assertRefused(intent("r"), "a run must have a new name");
    assertEquals(1, Files.size(path));
  }

  @Test
  public void losingTheScreenSpoilsARun() throws Exception {
    Phone.push("tiny");
    ActivityController<BenchmarkActivity> controller = start(intent("r"));
    Phone.await(() -> Phone.lines().stream().anyMatch(line -> line.get("state").equals("warming_up")));
    controller.windowFocusChanged(false);
    Map<?, ?> last = end(controller);
    assertEquals("failed", last.get("state"));
    assertTrue((String) last.get("reason"), ((String) last.get("reason")).contains("covered the app"));
    assertEquals("failed", measurement("r.json").get("status"));
  }

  @Test
  public void backOrPowerSavingStopsRun() throws Exception {
    Phone.push("tiny");
    ActivityController<BenchmarkActivity> controller = start(intent("r"));
    controller.get().onBackPressed();
    assertFalse(controller.get().isFinishing());
    assertEquals("you stopped the measurement", end(controller).get("reason"));
    PowerManager power = RuntimeEnvironment.getApplication().getSystemService(PowerManager.class);
    shadowOf(power).setIsPowerSaveMode(true);
    Map<?, ?> last = run(intent("s"));
    assertEquals("failed", last.get("state"));
    assertTrue(((String) last.get("reason")).contains("power saving was on"));
  }

  @Test
  public void backDispatcherStopsTheRun() throws Exception {
    Phone.push("tiny");
    // As on Android 16 for apps with this target.
    RuntimeEnvironment.getApplication().getApplicationInfo().setEnableOnBackInvokedCallback(true);
    ActivityController<BenchmarkActivity> controller = start(intent("r"));
    WindowOnBackInvokedDispatcher dispatcher =
        ReflectionHelpers.getField(controller.get().getOnBackInvokedDispatcher(), "mActualDispatcher");
    dispatcher.getTopCallback().onBackInvoked();
    assertFalse(controller.get().isFinishing());
    assertEquals("you stopped the measurement", end(controller).get("reason"));
  }

  @Test
  public void secondStartDoesNotDisturbFirst() throws Exception {
    Phone.push("tiny");
    ActivityController<BenchmarkActivity> controller = start(intent("r"));
    controller.newIntent(intent("second"));
    Map<?, ?> refusal =
        Phone.lines().stream().filter(line -> "second".equals(line.get("run"))).findFirst().orElseThrow();
    assertEquals("refused", refusal.get("state"));
    assertEquals("done", end(controller).get("state"));
    assertTrue(Files.exists(Phone.files().resolve("results/r.json")));
  }

  @Test
  public void killedRunDoesNotResume() throws Exception {
    Phone.push("tiny");
    ActivityController<BenchmarkActivity> controller =
        Robolectric.buildActivity(BenchmarkActivity.class, intent("r")).setup(new Bundle());
    Map<?, ?> last = end(controller);
    assertEquals("failed", last.get("state"));
    assertTrue(((String) last.get("reason")).contains("the phone closed the app"));
    assertFalse(Files.exists(Phone.files().resolve("results/r.json")));
  }
}
