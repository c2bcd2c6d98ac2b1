package org.pocketbert.bundle;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.pocketbert.ResourceTable;

/** A row of {@code pocketbert.recipes.RECIPES}: the differences that the checks allow. */
public final class Recipe {
  private static final Map<String, Recipe> RECIPES = read();

  /** The recipes' names, in the table's order. */
  static final Set<String> NAMES = Collections.unmodifiableSet(RECIPES.keySet());

  /** Largest difference from the float model, relative to the root mean square of its outputs. */
  public final double largestDifference;

  /** Root mean square difference from the float model, relative like {@link #largestDifference}. */
  public final double rmsDifference;

  /** Largest difference from the outputs at export, relative to the largest of them. */
  public final double ownDifference;

  private Recipe(String[] words) {
    largestDifference = Double.parseDouble(words[1]);
    rmsDifference = Double.parseDouble(words[2]);
    ownDifference = Double.parseDouble(words[3]);
  }

  /** Returns the recipe of an opened bundle. */
  public static Recipe of(String name) {
    return RECIPES.get(name);
  }

  private static Map<String, Recipe> read() {
    Map<String, Recipe> recipes = new LinkedHashMap<>();
    for (String[] words : ResourceTable.lines(Recipe.class, "recipes.txt")) {
      recipes.put(words[0], new Recipe(words));
    }
    return recipes;
  }
}
