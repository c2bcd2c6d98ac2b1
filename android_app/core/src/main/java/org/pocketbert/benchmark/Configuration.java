package org.pocketbert.benchmark;

import org.pocketbert.bundle.Bundle;
import org.pocketbert.engine.Delegate;

/** A bundle at one length with one thread count, on the CPU or the GPU. */
public final class Configuration {
  final String label;

  /** The measured bundle. */
  public final Bundle bundle;

  final int length;
  final int threads;
  final Delegate delegate;

  /** Creates a configuration on the CPU; see the other constructor for the arguments. */
  public Configuration(String label, Bundle bundle, int length, int threads) {
    this(label, bundle, length, threads, Delegate.CPU);
  }

  /**
   * Creates a configuration.
   *
   * @param label its name in tables
   * @param length tokens in a call, padding included
   * @param threads the runtime's threads
   * @param delegate where the network should run
   * @throws org.pocketbert.UserError if the bundle has no such length
   */
  public Configuration(String label, Bundle bundle, int length, int threads, Delegate delegate) {
    bundle.signature(length);
    this.label = label;
    this.bundle = bundle;
    this.length = length;
    this.threads = threads;
    this.delegate = delegate;
  }
}
