package org.pocketbert.engine;

/** A runtime that cannot open or run a model; the message is a sentence for people. */
public final class EngineException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** An exception whose message becomes a configuration's result. */
  public EngineException(String message) {
    super(message);
  }
}
