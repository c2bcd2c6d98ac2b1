package org.pocketbert.app;

import android.app.Activity;
import android.content.Intent;
import android.content.pm.PackageManager;
import android.os.BadParcelableException;
import android.os.Build;
import android.os.Bundle;
import android.os.Process;
import android.util.Log;
import android.view.WindowManager;
import android.window.OnBackInvokedDispatcher;
import android.widget.ProgressBar;
import android.widget.TextView;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.Benchmark;
import org.pocketbert.benchmark.ProcessMemory;
import org.pocketbert.benchmark.ResultFile;
import org.pocketbert.benchmark.Schedule;
import org.pocketbert.device.DeviceRun;
import org.pocketbert.device.RunRequest;
import org.pocketbert.device.StateLine;
import org.pocketbert.device.StateLine.State;

/**
 * Measures one configuration in this process, writes its result file and ends the process.
 *
 * <p>The app's main screen or adb's shell starts it with the extras of {@link RunRequest}. It logs its state with
 * {@link StateLine}.
 */
public final class BenchmarkActivity extends Activity {
  /** Result extra: the result file's name; absent if there is none. */
  static final String RESULT = "result";

  /** Result extra: why there is no number; absent on success. */
  static final String REASON = "reason";

  private static final int SECONDS_TO_FRONT = 15;

  private AndroidDevice device;
  private RunRequest request;
  private String run;
  private TextView stateText;
  private ProgressBar progressBar;

  @Override
  protected void onCreate(Bundle savedState) {
    super.onCreate(savedState);
    getWindow().addFlags(WindowManager.LayoutParams.FLAG_KEEP_SCREEN_ON);
    setContentView(R.layout.benchmark);
    stateText = findViewById(R.id.state);
    progressBar = findViewById(R.id.progress);
    device = new AndroidDevice(this, version());
    stopOnBack();
    Map<String, Object> extras = extras(getIntent());
    run = RunRequest.name(extras);
    try {
      request = RunRequest.parse(extras);
    } catch (UserError error) {
      end(State.REFUSED, error.getMessage(), null);
      return;
    }
    if (savedState != null) {
      end(State.FAILED, "the phone closed the app during the measurement; close other apps and measure again", null);
      return;
    }
    stateText.setText(getString(R.string.started, request.bundle));
    log(StateLine.progress(request.run, State.STARTED, 0, 0));
    new Thread(this::measure, "measure").start();
  }

  /** Refuses a second start during a run, without disturbing the run. */
  @Override
  protected void onNewIntent(Intent intent) {
    super.onNewIntent(intent);
    log(
        StateLine.end(
            RunRequest.name(extras(intent)),
            State.REFUSED,
            "the app is already measuring; wait until it is done",
            null));
  }

  @Override
  public void onWindowFocusChanged(boolean hasFocus) {
    super.onWindowFocusChanged(hasFocus);
    device.setInFront(hasFocus);
  }

  private void stopOnBack() {
    if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.TIRAMISU) {
      getOnBackInvokedDispatcher()
          .registerOnBackInvokedCallback(OnBackInvokedDispatcher.PRIORITY_DEFAULT, this::stop);
    }
  }

  /** Handles Back before Android 13. Android 16 calls the dispatcher only; versions between call one of them. */
  @Override
  public void onBackPressed() {
    stop();
  }

  private void stop() {
    stateText.setText(R.string.stopping);
    device.interrupt("you stopped the measurement");
  }

  @Override
  protected void onDestroy() {
    super.onDestroy();
    // The next configuration needs a fresh process.
    Process.killProcess(Process.myPid());
  }

  private void measure() {
    try {
      AppFolders folders = new AppFolders(this);
      Path path = folders.results.resolve(request.run + ".json");
      if (Files.exists(path)) {
        throw new UserError(
            "a run must have a new name; received " + request.run + ", which has a result; choose another name");
      }
      // Loading native libraries is not part of the model's opening time.
      Engines.load();
      device.awaitFront(SECONDS_TO_FRONT);
      long started = System.currentTimeMillis();
      Long baseMemoryBytes = ProcessMemory.residentBytes();
      org.pocketbert.bundle.Bundle bundle = folders.store.take(request.bundle);
      Map<String, Object> machine = device.describe();
      Map<String, Object> measurement =
          DeviceRun.measure(device, Schedule.FULL, request, bundle, baseMemoryBytes, this::show);
      List<String> notes = Benchmark.notes(bundle);
      ResultFile.write(
          path,
          ResultFile.of(
              "Run " + request.run + " on a phone", started, "device", machine, Arrays.asList(measurement), notes),
          false);
      String error = (String) measurement.get("error");
      end(error == null ? State.DONE : State.FAILED, error, path.getFileName().toString());
    } catch (UserError error) {
      end(State.REFUSED, error.getMessage(), null);
    } catch (IOException error) {
      String reason = "the app cannot write the result (" + error.getMessage() + "); free storage on the phone";
      end(State.FAILED, reason, null);
    } catch (OutOfMemoryError error) {
      end(State.FAILED, "the phone has too little memory; close other apps or use a smaller bundle", null);
    } catch (LinkageError | StackOverflowError | RuntimeException error) {
      Log.e(BenchmarkActivity.class.getSimpleName(), "internal error", error);
      end(State.FAILED, "internal error in the app: " + error, null);
    }
  }

  private void show(State state, int done, int of) {
    log(StateLine.progress(request.run, state, done, of));
    runOnUiThread(
        () -> {
          stateText.setText(text(state, done, of));
          progressBar.setMax(Math.max(of, 1));
          progressBar.setProgress(done);
        });
  }

  private String text(State state, int done, int of) {
    switch (state) {
      case COOLING:
        return getString(R.string.cooling, done, of);
      case CHECKING:
        return getString(R.string.checking);
      case WARMING_UP:
        return getString(R.string.warming_up);
      default:
        return getString(R.string.measuring, done, of);
    }
  }

  private void end(State state, String reason, String result) {
    Intent answer = new Intent();
    if (reason != null) {
      answer.putExtra(REASON, reason);
    }
    if (result != null) {
      answer.putExtra(RESULT, result);
    }
    log(StateLine.end(run, state, reason, result));
    runOnUiThread(
        () -> {
          setResult(RESULT_OK, answer);
          finish();
        });
  }

  private static void log(String line) {
    Log.i(StateLine.TAG, line);
  }

  private static Map<String, Object> extras(Intent intent) {
    Map<String, Object> values = new LinkedHashMap<>();
    try {
      Bundle extras = intent.getExtras();
      for (String key : extras == null ? Collections.<String>emptySet() : extras.keySet()) {
        values.put(key, extras.get(key));
      }
    } catch (BadParcelableException error) {
      // The extras contain unknown classes, never part of a valid request: refuse it as empty.
      values.clear();
    }
    return values;
  }

  private String version() {
    try {
      return getPackageManager().getPackageInfo(getPackageName(), 0).versionName;
    } catch (PackageManager.NameNotFoundException error) {
      throw new IllegalStateException("a running app must be installed", error);
    }
  }
}
