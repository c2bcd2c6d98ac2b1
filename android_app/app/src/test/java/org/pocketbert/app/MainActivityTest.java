package org.pocketbert.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.app.Activity;
import android.content.Intent;
import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.graphics.Paint;
import android.view.View;
import android.widget.Spinner;
import android.widget.TextView;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.pocketbert.json.Json;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.annotation.Config;

@RunWith(RobolectricTestRunner.class)
@Config(sdk = {28, 35})
public class MainActivityTest {
  private static String text(Activity activity, int id) {
    return ((TextView) activity.findViewById(id)).getText().toString();
  }

  /** Opens the screen and waits until it has read the folders. */
  private static ActivityController<MainActivity> open() throws InterruptedException {
    ActivityController<MainActivity> controller = Robolectric.buildActivity(MainActivity.class).setup();
    String looking = controller.get().getString(R.string.looking);
    Phone.await(() -> !text(controller.get(), R.id.status).equals(looking));
    return controller;
  }

  private static void choose(Activity activity, int spinner, Object value) throws InterruptedException {
    Spinner view = activity.findViewById(spinner);
    for (int i = 0; i < view.getCount(); i++) {
      if (view.getItemAtPosition(i).equals(value)) {
        view.setSelection(i);
      }
    }
    Phone.await(() -> value.equals(view.getSelectedItem()));
  }

  /** Records the drawing calls. */
  private static final class Drawing extends Canvas {
    final List<String> dots = new ArrayList<>();
    final List<String> lines = new ArrayList<>();

    Drawing() {
      super(Bitmap.createBitmap(300, 200, Bitmap.Config.ARGB_8888));
    }

    @Override
    public void drawCircle(float x, float y, float radius, Paint paint) {
      dots.add(x + " " + y);
    }

    @Override
    public void drawLine(float fromX, float fromY, float toX, float toY, Paint paint) {
      lines.add(fromX + " " + fromY + " " + toX + " " + toY + (paint.getPathEffect() == null ? "" : " dashed"));
    }
  }

  @Test
  public void noBundlesShowsInstructions() throws Exception {
    Activity activity = open().get();
    assertTrue(text(activity, R.id.status), text(activity, R.id.status).contains("This phone has no bundles"));
    assertTrue(text(activity, R.id.status).contains(Phone.files().resolve("bundles") + "/"));
    assertFalse(activity.findViewById(R.id.run).isEnabled());
    assertEquals(View.GONE, activity.findViewById(R.id.share).getVisibility());
  }

  @Test
  public void whatIsChosenIsMeasured() throws Exception {
    Phone.push("a");
    Phone.push("tiny");
    Activity activity = open().get();
    assertEquals("Task: classification.\n" + activity.getString(R.string.ready), text(activity, R.id.status));
    choose(activity, R.id.bundle, "tiny");
    choose(activity, R.id.length, 9);
    choose(activity, R.id.threads, 2);
    activity.findViewById(R.id.run).performClick();
    Intent started = shadowOf(activity).getNextStartedActivity();
    assertEquals(BenchmarkActivity.class.getName(), started.getComponent().getClassName());
    assertTrue(started.getStringExtra("run").matches("screen-[0-9]{8}-[0-9]{6}"));
    assertEquals("tiny", started.getStringExtra("bundle"));
    assertEquals(9, started.getIntExtra("length", 0));
    assertEquals(2, started.getIntExtra("threads", 0));
    assertEquals(4, started.getExtras().size());
  }

  @SuppressWarnings("unchecked")
  private static void pushWithTask(String name, Map<String, Object> task) throws IOException {
    Path path = Phone.push(name).resolve("bundle.json");
    String text = new String(Files.readAllBytes(path), StandardCharsets.UTF_8);
    Map<String, Object> description = new LinkedHashMap<>((Map<String, Object>) Json.parse(text));
    description.put("task", task);
    Files.write(path, Json.write(description).getBytes(StandardCharsets.US_ASCII));
  }

  @Test
  public void taskOfTheBundleIsShown() throws Exception {
    Map<String, Object> options = new HashMap<>();
    options.put("pooling", "mean");
    options.put("normalize", true);
    options.put("dimensions", null);
    options.put("dense_bias", true);
    options.put("dense_activation", "tanh");
    options.put("dense_residual", false);
    options.put("max_length", null);
    options.put("prompts", new ArrayList<>());
    options.put("default_prompt", null);
    Map<String, Object> embedding = new HashMap<>();
    embedding.put("kind", "embedding");
    embedding.put("name", "");
    embedding.put("labels", new ArrayList<>());
    embedding.put("embedding", options);
    pushWithTask("a", embedding);
    Map<String, Object> tags = new HashMap<>();
    tags.put("kind", "token_classification");
    tags.put("name", "");
    tags.put("labels", Arrays.asList("O", "B-LOC"));
    pushWithTask("b", tags);
    pushWithTask("c", null);
    Activity activity = open().get();
    String ready = "\n" + activity.getString(R.string.ready);
    assertEquals(
        "Task: embedding. One call embeds one text. Longer texts are truncated." + ready,
        text(activity, R.id.status));
    choose(activity, R.id.bundle, "b");
    assertEquals(
        "Task: token classification. One call labels one window. Longer texts need several calls." + ready,
        text(activity, R.id.status));
    choose(activity, R.id.bundle, "c");
    assertEquals("Task: none, a bare encoder." + ready, text(activity, R.id.status));
  }

  @Test
  public void brokenBundleShowsAReason() throws Exception {
    Files.write(Phone.push("tiny").resolve("bundle.json"), new byte[] {'{'});
    Activity activity = open().get();
    String status = text(activity, R.id.status);
    assertTrue(status, status.startsWith("The app cannot use this bundle: bundle tiny"));
    assertFalse(activity.findViewById(R.id.run).isEnabled());
  }

  @Test
  public void hugeDescriptionHidesNoOtherBundle() throws Exception {
    Phone.push("tiny");
    char[] zeros = new char[7_500_000];
    Arrays.fill(zeros, '0');
    String list = "[" + new String(zeros).replace("0", "0,") + "0]";
    Path huge = Files.createDirectories(Phone.files().resolve("bundles/huge")).resolve("bundle.json");
    Files.write(huge, list.getBytes(StandardCharsets.US_ASCII));
    Activity activity = open().get();
    assertTrue(text(activity, R.id.status), text(activity, R.id.status).contains("bundle.json expected at most"));
    choose(activity, R.id.bundle, "tiny");
    assertTrue(activity.findViewById(R.id.run).isEnabled());
  }

  @Test
  public void resultIsComparedWithPrevious() throws Exception {
    Phone.push("tiny");
    Phone.writeResult("old.json", 0, 4000, 4000, 4000);
    Phone.writeResult("new.json", 60_000, 2900, 3000, 3200, 3000, 9900);
    Activity activity = open().get();
    Phone.await(() -> activity.findViewById(R.id.result).getVisibility() == View.VISIBLE);
    // 90th percentile of five: 0.6 of the way from the fourth to the fifth.
    assertEquals(
        "tiny, 17 tokens, 1 thread: median 3.0 ms, 90 % of calls within 7.2 ms, 5 calls.\n"
            + "25 % faster than the previous run (4.0 ms).",
        text(activity, R.id.result));
    ChartView chart = activity.findViewById(R.id.chart);
    assertEquals(View.VISIBLE, chart.getVisibility());
    chart.layout(0, 0, 300, 200);
    Drawing drawing = new Drawing();
    chart.onDraw(drawing);
    // The axis ends at twice the slower median, 8 ms; higher values are on the upper edge.
    assertEquals(
        Arrays.asList("30.0 127.5", "90.0 125.0", "150.0 120.0", "210.0 125.0", "270.0 0.0"), drawing.dots);
    assertEquals(
        Arrays.asList("0.0 125.0 300.0 125.0", "0.0 100.0 300.0 100.0 dashed", "0.0 199.0 300.0 199.0"),
        drawing.lines);
    activity.findViewById(R.id.share).performClick();
    Intent chooser = shadowOf(activity).getNextStartedActivity();
    Intent send = chooser.getParcelableExtra(Intent.EXTRA_INTENT);
    assertEquals(Intent.ACTION_SEND, send.getAction());
    assertEquals("new.json", send.getStringExtra(Intent.EXTRA_SUBJECT));
    assertTrue(send.getStringExtra(Intent.EXTRA_TEXT).contains("9900.0"));
  }

  @Test
  public void aResultToDoubtSaysSo() throws Exception {
    Phone.push("tiny");
    Phone.writeResult("unsteady.json", 0, 3000);
    Activity activity = open().get();
    Phone.await(() -> activity.findViewById(R.id.result).getVisibility() == View.VISIBLE);
    assertTrue(text(activity, R.id.result).endsWith(activity.getString(R.string.unsteady)));
  }

  private static void change(String name, String pattern, String replacement) throws IOException {
    Path path = Phone.files().resolve("results").resolve(name);
    String text = new String(Files.readAllBytes(path), StandardCharsets.US_ASCII);
    String changed = text.replaceFirst(pattern, replacement);
    assertFalse(changed.equals(text));
    Files.write(path, changed.getBytes(StandardCharsets.US_ASCII));
  }

  @Test
  public void otherFilesAreNotShown() throws Exception {
    Phone.writeResult("good.json", 0, 3000, 3000, 3000);
    Phone.writeResult("timeless.json", 60_000, 4000, 4000);
    change("timeless.json", "\"created\": \"[^\"]*\"", "\"created\": null");
    Phone.writeResult("numberless.json", 120_000, 5000, 5000);
    change("numberless.json", "\"latency_us\": \\[[^\\]]*]", "\"latency_us\": []");
    Activity activity = open().get();
    Phone.await(() -> activity.findViewById(R.id.result).getVisibility() == View.VISIBLE);
    String result = text(activity, R.id.result);
    assertTrue(result, result.startsWith("tiny, 17 tokens, 1 thread: median 3.0 ms"));
  }

  @Test
  public void whatWentWrongIsASentence() throws Exception {
    Phone.push("tiny");
    ActivityController<MainActivity> controller = open();
    MainActivity activity = controller.get();
    activity.onActivityResult(1, Activity.RESULT_OK, new Intent().putExtra("reason", "It was hot."));
    controller.pause().resume();
    Phone.await(() -> text(activity, R.id.status).endsWith("\nNot measured: It was hot."));
    activity.onActivityResult(1, Activity.RESULT_CANCELED, null);
    controller.pause().resume();
    Phone.await(() -> text(activity, R.id.status).contains("\nThe measurement ended without a result"));
  }

  @Test
  public void rotationKeepsWhatWasChosen() throws Exception {
    Phone.push("a");
    Phone.push("tiny");
    ActivityController<MainActivity> controller = open();
    choose(controller.get(), R.id.bundle, "tiny");
    choose(controller.get(), R.id.length, 9);
    choose(controller.get(), R.id.threads, 1);
    controller.get().onActivityResult(1, Activity.RESULT_OK, new Intent().putExtra("reason", "It was hot."));
    controller.recreate();
    Activity turned = controller.get();
    Phone.await(() -> turned.findViewById(R.id.run).isEnabled());
    Phone.await(() -> text(turned, R.id.status).endsWith("It was hot."));
    assertEquals("tiny", ((Spinner) turned.findViewById(R.id.bundle)).getSelectedItem());
    assertEquals(9, ((Spinner) turned.findViewById(R.id.length)).getSelectedItem());
    assertEquals(1, ((Spinner) turned.findViewById(R.id.threads)).getSelectedItem());
  }
}
