package org.pocketbert.app;

import android.app.Activity;
import android.content.ActivityNotFoundException;
import android.content.Intent;
import android.os.Bundle;
import android.view.View;
import android.widget.AdapterView;
import android.widget.ArrayAdapter;
import android.widget.Button;
import android.widget.Spinner;
import android.widget.TextView;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.pocketbert.UserError;
import org.pocketbert.device.BundleStore;
import org.pocketbert.device.PastResult;

/** The main screen: choose a bundle, measure it, compare the result with the previous one, share it. */
public final class MainActivity extends Activity {
  private static final int MEASURE = 1;
  private static final int[] THREADS = {1, 2, 4};
  // Published figures use 128 tokens and 4 threads.
  private static final int USUAL_LENGTH = 128;
  private static final int USUAL_THREADS_PLACE = 2;
  private static final double SAME_PERCENT = 1;

  private final ExecutorService files = Executors.newSingleThreadExecutor();
  private List<BundleStore.Entry> bundles = new ArrayList<>();
  private Spinner bundleSpinner;
  private Spinner lengthSpinner;
  private Spinner threadsSpinner;
  private Button runButton;
  private TextView statusText;
  private PastResult shown;
  private String chosenBundle;
  private int chosenLength = USUAL_LENGTH;
  /** Why the last measurement gave no number; kept until the next one. */
  private String failure;

  @Override
  protected void onCreate(Bundle savedState) {
    super.onCreate(savedState);
    setContentView(R.layout.main);
    bundleSpinner = findViewById(R.id.bundle);
    lengthSpinner = findViewById(R.id.length);
    threadsSpinner = findViewById(R.id.threads);
    runButton = findViewById(R.id.run);
    statusText = findViewById(R.id.status);
    fill(threadsSpinner, THREADS);
    threadsSpinner.setSelection(USUAL_THREADS_PLACE);
    if (savedState != null) {
      chosenBundle = savedState.getString("bundle");
      chosenLength = savedState.getInt("length", USUAL_LENGTH);
      threadsSpinner.setSelection(savedState.getInt("threads_place", USUAL_THREADS_PLACE));
      failure = savedState.getString("failure");
    }
    bundleSpinner.setOnItemSelectedListener(new Choice(this::chooseBundle));
    lengthSpinner.setOnItemSelectedListener(
        new Choice(place -> chosenLength = (Integer) lengthSpinner.getItemAtPosition(place)));
    runButton.setOnClickListener(view -> measure());
    findViewById(R.id.share).setOnClickListener(view -> share());
  }

  @Override
  protected void onResume() {
    super.onResume();
    files.execute(this::look);
  }

  @Override
  protected void onSaveInstanceState(Bundle state) {
    super.onSaveInstanceState(state);
    state.putString("bundle", chosenBundle);
    state.putInt("length", chosenLength);
    state.putInt("threads_place", threadsSpinner.getSelectedItemPosition());
    state.putString("failure", failure);
  }

  @Override
  protected void onDestroy() {
    super.onDestroy();
    files.shutdown();
  }

  @Override
  protected void onActivityResult(int asked, int code, Intent answer) {
    if (asked != MEASURE) {
      return;
    }
    // The measuring screen returns a result even after Back; only a killed process returns none.
    if (code != RESULT_OK || answer == null) {
      failure = getString(R.string.ended);
    } else if (answer.hasExtra(BenchmarkActivity.REASON)) {
      failure = getString(R.string.no_number, answer.getStringExtra(BenchmarkActivity.REASON));
    } else {
      failure = null;
    }
  }

  /** Reads the folders on a background thread. */
  private void look() {
    try {
      AppFolders folders = new AppFolders(this);
      List<BundleStore.Entry> found = folders.store.list();
      List<PastResult> results = new ArrayList<>();
      for (PastResult result : PastResult.all(folders.results)) {
        if (result.error == null) {
          results.add(result);
        }
      }
      runOnUiThread(
          () -> {
            showBundles(found, folders);
            showResult(results);
          });
    } catch (UserError error) {
      runOnUiThread(() -> statusText.setText(error.getMessage()));
    } catch (RuntimeException | OutOfMemoryError | StackOverflowError error) {
      // The app must open anyway, so that you see which files to remove.
      runOnUiThread(() -> statusText.setText(getString(R.string.unreadable, error.toString())));
    }
  }

  private void showBundles(List<BundleStore.Entry> found, AppFolders folders) {
    bundles = found;
    List<String> names = new ArrayList<>();
    int place = 0;
    for (BundleStore.Entry entry : found) {
      place = entry.name.equals(chosenBundle) ? names.size() : place;
      names.add(entry.name);
    }
    bundleSpinner.setAdapter(adapter(names));
    if (found.isEmpty()) {
      runButton.setEnabled(false);
      statusText.setText(getString(R.string.no_bundles, folders.bundles));
    } else {
      bundleSpinner.setSelection(place);
      chooseBundle(place);
    }
  }

  private void chooseBundle(int place) {
    BundleStore.Entry entry = bundles.get(place);
    chosenBundle = entry.name;
    int lengthPlace = entry.lengths.length - 1;
    for (int i = 0; i < entry.lengths.length; i++) {
      lengthPlace = entry.lengths[i] == chosenLength ? i : lengthPlace;
    }
    fill(lengthSpinner, entry.lengths);
    runButton.setEnabled(entry.problem == null);
    if (entry.problem == null) {
      lengthSpinner.setSelection(lengthPlace);
      statusText.setText(task(entry.taskKind) + "\n" + (failure == null ? getString(R.string.ready) : failure));
    } else {
      statusText.setText(getString(R.string.broken_bundle, entry.problem));
    }
  }

  /** Names the task, and what one call does where this is not one text. */
  private String task(String kind) {
    if (kind == null) {
      return getString(R.string.no_task);
    }
    String name = getString(R.string.task, kind.replace('_', ' '));
    switch (kind) {
      case "embedding":
        return name + " " + getString(R.string.embeds);
      case "token_classification":
        return name + " " + getString(R.string.labels_tokens);
      default:
        return name;
    }
  }

  private void measure() {
    SimpleDateFormat name = new SimpleDateFormat("'screen-'yyyyMMdd-HHmmss", Locale.ROOT);
    Intent intent = new Intent(this, BenchmarkActivity.class);
    intent.putExtra("run", name.format(new Date()));
    intent.putExtra("bundle", chosenBundle);
    intent.putExtra("length", (Integer) lengthSpinner.getSelectedItem());
    intent.putExtra("threads", (Integer) threadsSpinner.getSelectedItem());
    startActivityForResult(intent, MEASURE);
  }

  /**
   * Shows the newest result, compared with the previous one of the same configuration.
   *
   * @param results those with a number, newest first
   */
  private void showResult(List<PastResult> results) {
    TextView resultText = findViewById(R.id.result);
    ChartView chart = findViewById(R.id.chart);
    int visibility = results.isEmpty() ? View.GONE : View.VISIBLE;
    resultText.setVisibility(visibility);
    chart.setVisibility(visibility);
    findViewById(R.id.share).setVisibility(visibility);
    if (results.isEmpty()) {
      return;
    }
    shown = results.get(0);
    double before = 0;
    for (int i = 1; i < results.size() && before == 0; i++) {
      before = results.get(i).isComparable(shown) ? results.get(i).medianUs : 0;
    }
    chart.show(shown.latencyUs, shown.medianUs, before);
    String threads = getResources().getQuantityString(R.plurals.threads_used, shown.threads, shown.threads);
    String result =
        getString(
            R.string.result,
            shown.label,
            shown.length,
            shown.onGpu ? threads + ", GPU" : threads,
            shown.medianUs / 1000,
            shown.p90Us / 1000,
            shown.latencyUs.length);
    String doubt = shown.isUnsteady ? "\n" + getString(R.string.unsteady) : "";
    resultText.setText(result + "\n" + comparison(shown.medianUs, before) + doubt);
  }

  private String comparison(double medianUs, double beforeUs) {
    if (beforeUs == 0) {
      return getString(R.string.first);
    }
    double percent = 100 * (medianUs / beforeUs - 1);
    if (Math.abs(percent) < SAME_PERCENT) {
      return getString(R.string.same, beforeUs / 1000);
    }
    return getString(percent < 0 ? R.string.faster : R.string.slower, Math.abs(percent), beforeUs / 1000);
  }

  private void share() {
    try {
      String text = new String(Files.readAllBytes(shown.path), StandardCharsets.US_ASCII);
      Intent send = new Intent(Intent.ACTION_SEND).setType("text/plain");
      send.putExtra(Intent.EXTRA_SUBJECT, shown.path.getFileName().toString());
      send.putExtra(Intent.EXTRA_TEXT, text);
      startActivity(Intent.createChooser(send, getString(R.string.share)));
    } catch (IOException error) {
      statusText.setText(R.string.result_gone);
    } catch (ActivityNotFoundException error) {
      statusText.setText(R.string.no_app);
    }
  }

  private void fill(Spinner spinner, int[] numbers) {
    List<Integer> values = new ArrayList<>();
    for (int number : numbers) {
      values.add(number);
    }
    spinner.setAdapter(adapter(values));
  }

  private <T> ArrayAdapter<T> adapter(List<T> values) {
    ArrayAdapter<T> adapter = new ArrayAdapter<>(this, android.R.layout.simple_spinner_item, values);
    adapter.setDropDownViewResource(android.R.layout.simple_spinner_dropdown_item);
    return adapter;
  }

  /** Passes a spinner's selected position on. */
  private static final class Choice implements AdapterView.OnItemSelectedListener {
    private interface Chosen {
      void at(int place);
    }

    private final Chosen chosen;

    Choice(Chosen chosen) {
      this.chosen = chosen;
    }

    @Override
    public void onItemSelected(AdapterView<?> parent, View view, int place, long id) {
      chosen.at(place);
    }

    @Override
    public void onNothingSelected(AdapterView<?> parent) {}
  }
}
