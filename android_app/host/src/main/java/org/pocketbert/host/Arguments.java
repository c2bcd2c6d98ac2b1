package org.pocketbert.host;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.pocketbert.UserError;

/** The command line. */
final class Arguments {
  static final String HELP =
      """
      Times bundles on this computer with the code that times them on a phone.

      Each bundle must reproduce its golden examples before it is timed. If one does not, or its process dies, you get
      a reason, the others are still measured, and the exit code is 1.

      usage: java -jar pocketbert-host.jar [flags] BUNDLE…
        --lengths=32,128     sequence lengths (default: all in the bundle)
        --threads=1,2        thread counts (default: 1)
        --name=NAME          the network's name (default: the bundle folder's name)
        --weights=random     whether the weights are trained or random (default: unknown)
        --weight-cache=DIR   folder of XNNPACK's weight caches, kept for later runs (default: pack weights again)
        --output=FILE        write a result file for pocketbert report
        --overwrite          replace the result file
        --help               show this text

      java -jar pocketbert-host.jar check BUNDLE…: compare bundles with their golden answers.
      java -jar pocketbert-host.jar answer --help: embed texts or find spans with a bundle.
      """;

  private static final List<String> WEIGHTS = List.of("trained", "random");

  final List<Path> bundles = new ArrayList<>();
  final boolean help;
  final boolean overwrite;
  final Path output;
  /** Null if not given. */
  final Path weightCache;
  /** Null if not given. */
  final String name;
  /** Null if not given. */
  final String weights;
  /** Empty for all lengths in a bundle. */
  final List<Integer> lengths;

  final List<Integer> threads;

  /**
   * Reads a command line.
   *
   * @throws UserError lists everything that is wrong with it
   */
  Arguments(String... words) {
    List<String> problems = new ArrayList<>();
    boolean needsHelp = false;
    boolean mayReplace = false;
    Path file = null;
    Path caches = null;
    String network = null;
    String origin = null;
    List<Integer> tokens = List.of();
    List<Integer> numbers = List.of(1);
    for (String word : words) {
      String value = word.substring(word.indexOf('=') + 1);
      if (word.equals("--help")) {
        needsHelp = true;
      } else if (word.equals("--overwrite")) {
        mayReplace = true;
      } else if (word.startsWith("--output=") && !value.isEmpty()) {
        file = Path.of(value);
      } else if (word.startsWith("--weight-cache=") && !value.isEmpty()) {
        caches = Path.of(value);
      } else if (word.startsWith("--name=") && !value.isEmpty()) {
        network = value;
      } else if (word.startsWith("--weights=")) {
        origin = value;
      } else if (word.startsWith("--lengths=")) {
        tokens = numbers("--lengths", value, problems);
      } else if (word.startsWith("--threads=")) {
        numbers = numbers("--threads", value, problems);
      } else if (word.startsWith("-")) {
        problems.add(
            "a flag must be one of --lengths=, --threads=, --name=, --weights=, --weight-cache=, --output=, --overwrite, "
                + "--help; received " + word);
      } else {
        bundles.add(Path.of(word));
      }
    }
    help = needsHelp;
    overwrite = mayReplace;
    output = file;
    weightCache = caches;
    name = network;
    weights = origin;
    lengths = tokens;
    threads = numbers;
    if (weights != null && !WEIGHTS.contains(weights)) {
      problems.add("--weights must be one of " + String.join(", ", WEIGHTS) + "; received " + weights);
    }
    if (bundles.isEmpty()) {
      problems.add("pass at least one bundle; received none; for example runs/sst2_int8");
    }
    for (Path bundle : bundles) {
      if (!Files.isDirectory(bundle)) {
        problems.add("a bundle must be a folder written by pocketbert export; received " + bundle);
      }
    }
    if (output != null && Files.exists(output) && !overwrite) {
      problems.add(output + " already exists; add --overwrite to replace it");
    }
    if (output != null && !Files.isDirectory(output.toAbsolutePath().getParent())) {
      problems.add(output + " must be in an existing folder; create the folder first");
    }
    if (!help) {
      UserError.throwIfAny(problems, "pocketbert-host");
    }
  }

  private static List<Integer> numbers(String flag, String value, List<String> problems) {
    Set<Integer> numbers = new LinkedHashSet<>();
    for (String number : value.split(",", -1)) {
      if (!number.matches("[1-9][0-9]{0,5}") || !numbers.add(Integer.valueOf(number))) {
        problems.add(flag + " must be different positive numbers, such as " + flag + "=1,2; received " + value);
        break;
      }
    }
    return List.copyOf(numbers);
  }
}
