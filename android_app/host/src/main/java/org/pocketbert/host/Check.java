package org.pocketbert.host;

import java.io.PrintStream;
import java.nio.file.Path;
import java.util.List;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.engine.BundleEngines;
import org.pocketbert.engine.EngineException;

/** Compares bundles with their golden answers: {@code check BUNDLE…}. */
final class Check {
  static final String COMMAND = "check";

  private Check() {}

  /** Prints a line for each bundle, {@code ok} or a reason; returns the exit code, 1 if a bundle fails. */
  static int run(List<String> paths, PrintStream output) {
    if (paths.isEmpty() || paths.stream().anyMatch(path -> path.startsWith("-"))) {
      throw new UserError("pocketbert-host check: pass bundles and no flags; received " + String.join(" ", paths));
    }
    int failures = 0;
    for (String path : paths) {
      try {
        Bundle bundle = Bundle.open(Path.of(path));
        try (BundleEngines engines = new BundleEngines(bundle, 1)) {
          bundle.check(engines);
        }
        output.println("ok");
      } catch (UserError | EngineException error) {
        output.println(error.getMessage());
        failures++;
      }
    }
    return failures > 0 ? 1 : 0;
  }
}
