package org.pocketbert.json;

/** A text that is not JSON; the message says what was expected, where, and what was found. */
public final class JsonError extends RuntimeException {
  private static final long serialVersionUID = 1;

  JsonError(String message) {
    super(message);
  }
}
