package org.pocketbert.benchmark;

import org.pocketbert.bundle.Bundle;
import org.pocketbert.engine.Delegate;

/** What is measured: a bundle at one length with one number of threads, on the processor or the GPU. */
public final class Configuration {
  final String label;
  final Bundle bundle;
  final int length;
  final int threads;
  final Delegate delegate;

  /** A configuration on the processor's cores; the arguments are those of the other constructor. */
  public Configuration(String label, Bundle bundle, int length, int threads) {
    this(label, bundle, length, threads, Delegate.CPU);
  }

  /**
   * A configuration.
   *
   * @param label what it is called in tables
   * @param length tokens in a call, padding included
   * @param threads that the runtime gets
   * @param delegate what the runtime is asked to run it on
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
