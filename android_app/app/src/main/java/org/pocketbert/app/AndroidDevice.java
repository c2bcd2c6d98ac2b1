package org.pocketbert.app;

import android.content.Context;
import android.os.BatteryManager;
import android.os.Build;
import android.os.PowerManager;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.LinuxFacts;
import org.pocketbert.device.Device;
import org.pocketbert.device.Processors;
import org.pocketbert.device.RunRequest;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;

/** This phone. */
final class AndroidDevice implements Device {
  private static final int LOOK_MILLISECONDS = 50;

  private final PowerManager power;
  private final BatteryManager battery;
  private final String version;
  private final Path caches;
  private volatile boolean isInFront;
  private volatile boolean wasInFront;
  private volatile String interruption;

  AndroidDevice(Context context, String version) {
    power = (PowerManager) context.getSystemService(Context.POWER_SERVICE);
    battery = (BatteryManager) context.getSystemService(Context.BATTERY_SERVICE);
    this.version = version;
    // Android clears this folder when the app is updated.
    caches = context.getCodeCacheDir().toPath().resolve("weight_caches");
  }

  /** Records whether the measuring screen is in front. */
  void setInFront(boolean inFront) {
    isInFront = inFront;
    if (inFront) {
      wasInFront = true;
    } else if (wasInFront) {
      interrupt("something else covered the app; leave the phone alone and measure again");
    }
  }

  /** Ends the run with a reason. */
  void interrupt(String sentence) {
    if (interruption == null) {
      interruption = sentence;
    }
  }

  /**
   * Waits until the screen shows the app.
   *
   * @throws UserError if the time runs out or the run is interrupted
   */
  void awaitFront(int seconds) {
    long began = nanoTime();
    while (!isInFront) {
      if (interruption != null) {
        throw new UserError(interruption);
      }
      if (nanoTime() - began >= seconds * 1_000_000_000L) {
        throw new UserError(
            "the screen must be on, unlocked and show the app; it did not within " + seconds
                + " s; unlock the phone and measure again");
      }
      sleep(LOOK_MILLISECONDS);
    }
  }

  /** Returns a result file's {@code machine}. */
  Map<String, Object> describe() {
    Map<String, Object> packages = new LinkedHashMap<>();
    packages.put("android", Build.VERSION.RELEASE);
    packages.put("android_api", String.valueOf(Build.VERSION.SDK_INT));
    packages.put("pocketbert_app", version);
    Map<String, Object> machine = new LinkedHashMap<>();
    machine.put("cpu", Build.VERSION.SDK_INT >= 31 ? Build.SOC_MANUFACTURER + " " + Build.SOC_MODEL : Build.HARDWARE);
    machine.put("architecture", System.getProperty("os.arch"));
    machine.put("instruction_sets", LinuxFacts.instructionSets());
    machine.put("cores", Runtime.getRuntime().availableProcessors());
    machine.put("memory_bytes", LinuxFacts.memoryBytes());
    machine.put("system", Build.FINGERPRINT);
    machine.put("python", null);
    machine.put("packages", packages);
    machine.put("governor", LinuxFacts.governor());
    machine.put("load_average", LinuxFacts.loadAverage());
    machine.put("product", Build.MANUFACTURER + " " + Build.MODEL);
    return machine;
  }

  @Override
  public long nanoTime() {
    return System.nanoTime();
  }

  @Override
  public void sleep(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      throw new IllegalStateException("the measuring thread must not be interrupted", error);
    }
  }

  @Override
  public Set<Delegate> delegates() {
    return Engines.DELEGATES;
  }

  @Override
  public Path weightCaches() {
    return Engines.hasWeightCache() ? caches : null;
  }

  @Override
  public String runtime() {
    return Engines.runtime();
  }

  @Override
  public Engine open(ByteBuffer model, String signature, int threads, Delegate delegate, Path weightCache) {
    return Engines.open(model, signature, threads, delegate, weightCache);
  }

  @Override
  public int thermalStatus() {
    return Build.VERSION.SDK_INT >= 29 ? power.getCurrentThermalStatus() : UNKNOWN;
  }

  @Override
  public Double thermalHeadroom() {
    double headroom = Build.VERSION.SDK_INT >= 30 ? power.getThermalHeadroom(0) : Double.NaN;
    return Double.isNaN(headroom) || headroom < 0 ? null : headroom;
  }

  @Override
  public boolean powerSave() {
    return power.isPowerSaveMode();
  }

  @Override
  public String interruption() {
    return interruption;
  }

  @Override
  public Integer batteryPercent() {
    int percent = battery.getIntProperty(BatteryManager.BATTERY_PROPERTY_CAPACITY);
    return percent >= 0 && percent <= 100 ? percent : null;
  }

  @Override
  public Boolean charging() {
    return battery.isCharging();
  }

  @Override
  public void restrict(RunRequest.Affinity affinity) {
    Affinity.restrict(new Processors(Processors.FOLDER).mask(affinity));
  }
}
