package org.pocketbert.app;

import android.content.Context;
import android.graphics.Canvas;
import android.graphics.DashPathEffect;
import android.graphics.Paint;
import android.util.AttributeSet;
import android.view.View;

/** Draws the latency of each call in order, with this run's median and the previous run's. */
public final class ChartView extends View {
  private static final int DOT_COLOUR = 0xFF2E86C1;
  private static final int LINE_COLOUR = 0xFF1B4F72;
  // Limits the axis, so that a single slow call does not flatten the others.
  private static final double HIGHEST_BY_MEDIAN = 2;

  private final Paint dots = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final Paint line = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final Paint dashes = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final Paint words = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final float unit;
  private double[] latencyUs = {};
  private double medianUs;
  private double medianBeforeUs;

  /** Creates a view from a layout file. */
  public ChartView(Context context, AttributeSet attributes) {
    super(context, attributes);
    unit = getResources().getDisplayMetrics().density;
    dots.setColor(DOT_COLOUR);
    line.setColor(LINE_COLOUR);
    line.setStrokeWidth(2 * unit);
    dashes.set(line);
    dashes.setStyle(Paint.Style.STROKE);
    dashes.setPathEffect(new DashPathEffect(new float[] {6 * unit, 6 * unit}, 0));
    words.setColor(LINE_COLOUR);
    words.setTextSize(14 * unit * getResources().getConfiguration().fontScale);
  }

  /**
   * Shows a run.
   *
   * @param latencyUs microseconds, in order, at least one
   * @param medianUs its median
   * @param medianBeforeUs the previous run's median; 0 if there is none
   */
  void show(double[] latencyUs, double medianUs, double medianBeforeUs) {
    this.latencyUs = latencyUs;
    this.medianUs = medianUs;
    this.medianBeforeUs = medianBeforeUs;
    invalidate();
  }

  @Override
  protected void onDraw(Canvas canvas) {
    super.onDraw(canvas);
    if (latencyUs.length == 0) {
      return;
    }
    double highestUs = HIGHEST_BY_MEDIAN * Math.max(medianUs, medianBeforeUs);
    for (int i = 0; i < latencyUs.length; i++) {
      float x = getWidth() * (i + 0.5f) / latencyUs.length;
      canvas.drawCircle(x, height(Math.min(latencyUs[i], highestUs), highestUs), 2 * unit, dots);
    }
    float y = height(medianUs, highestUs);
    canvas.drawLine(0, y, getWidth(), y, line);
    canvas.drawText(getResources().getString(R.string.milliseconds, medianUs / 1000), 0, y - 4 * unit, words);
    if (medianBeforeUs > 0) {
      float before = height(medianBeforeUs, highestUs);
      canvas.drawLine(0, before, getWidth(), before, dashes);
    }
    canvas.drawLine(0, getHeight() - unit, getWidth(), getHeight() - unit, line);
  }

  private float height(double us, double highestUs) {
    return (float) (getHeight() * (1 - us / highestUs));
  }
}
