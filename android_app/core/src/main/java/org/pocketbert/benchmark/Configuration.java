package org.pocketbert.benchmark;

import org.pocketbert.bundle.Bundle;

/** What is measured: a bundle at one length with one number of threads. */
public final class Configuration {
  final String label;
  final Bundle bundle;
  final int length;
  final int threads;

  /**
   * A configuration.
   *
   * @param label what it is called in tables
   * @param length tokens in a call, padding included
   * @param threads that the runtime gets
   * @throws org.pocketbert.UserError if the bundle has no such length
   */
  public Configuration(String label, Bundle bundle, int length, int threads) {
    bundle.signature(length);
    this.label = label;
    this.bundle = bundle;
    this.length = length;
    this.threads = threads;
  }
}
