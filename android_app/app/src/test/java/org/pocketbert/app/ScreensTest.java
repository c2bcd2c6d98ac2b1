package org.pocketbert.app;

import static org.junit.Assert.assertTrue;

import android.app.Activity;
import android.content.Intent;
import android.graphics.Bitmap;
import android.graphics.Canvas;
import android.graphics.Color;
import android.view.View;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashSet;
import java.util.Set;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** Draws the screens with Android's own graphics, for the documentation. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w360dp-h720dp-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class ScreensTest {
  private static final int FEWEST_COLOURS = 8;
  private static final long MOST_BYTES = 200_000;

  private static void draw(Activity activity, String name) throws IOException {
    View screen = activity.getWindow().getDecorView();
    assertTrue(screen.getWidth() + " pixels", screen.getWidth() == 720);
    Bitmap bitmap = Bitmap.createBitmap(screen.getWidth(), screen.getHeight(), Bitmap.Config.ARGB_8888);
    bitmap.eraseColor(Color.WHITE);
    screen.draw(new Canvas(bitmap));
    Set<Integer> colours = new HashSet<>();
    for (int y = 0; y < bitmap.getHeight(); y += 3) {
      for (int x = 0; x < bitmap.getWidth(); x += 3) {
        colours.add(bitmap.getPixel(x, y));
      }
    }
    assertTrue(colours.size() + " colours", colours.size() >= FEWEST_COLOURS);
    Path file = Paths.get(System.getProperty("pocketbert.screens")).resolve(name);
    Files.createDirectories(file.getParent());
    try (OutputStream stream = Files.newOutputStream(file)) {
      assertTrue(bitmap.compress(Bitmap.CompressFormat.PNG, 100, stream));
    }
    assertTrue(Files.size(file) + " bytes", Files.size(file) <= MOST_BYTES);
  }

  @Test
  public void mainScreenShowsAResult() throws Exception {
    Phone.push("tiny");
    Phone.writeResult("earlier.json", 0, 4100, 4050, 4120, 4080, 4060, 4070);
    Phone.writeResult("result.json", 60_000, 3020, 2990, 3060, 3000, 3010, 2980);
    Activity activity = Robolectric.buildActivity(MainActivity.class).setup().get();
    Phone.await(() -> activity.findViewById(R.id.chart).getVisibility() == View.VISIBLE);
    draw(activity, "app-main.png");
  }

  @Test
  public void measuringScreenShowsItsState() throws Exception {
    Phone.push("tiny");
    Intent intent = new Intent(RuntimeEnvironment.getApplication(), BenchmarkActivity.class);
    intent.putExtra("run", "screen").putExtra("bundle", "tiny").putExtra("length", 17).putExtra("threads", 1);
    Activity activity = Robolectric.buildActivity(BenchmarkActivity.class, intent).setup().get();
    draw(activity, "app-measuring.png");
    // The measurement starts when the window has the focus; without it, nothing runs in the background.
  }
}
