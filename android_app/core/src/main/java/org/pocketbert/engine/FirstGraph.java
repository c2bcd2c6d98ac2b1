package org.pocketbert.engine;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Reads a model's first graph from the file (a FlatBuffer), because TensorFlow Lite's Java interface hides it. */
final class FirstGraph {
  // Field indices in the tables Model and SubGraph of schema.fbs.
  private static final int MODEL_SUBGRAPHS = 2;
  private static final int SUBGRAPH_OPERATORS = 3;
  private static final int VTABLE_HEADER_BYTES = 4;

  private final ByteBuffer bytes;

  private FirstGraph(ByteBuffer model) {
    bytes = model.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  /**
   * Returns the number of operators in a file's first graph.
   *
   * @throws EngineException if the bytes are not a model
   */
  static int operators(ByteBuffer model) {
    FirstGraph file = new FirstGraph(model);
    try {
      int graphs = file.vector(file.follow(0), MODEL_SUBGRAPHS);
      // A vector of tables has its length, then one offset per table.
      int operators = file.vector(file.follow(graphs + Integer.BYTES), SUBGRAPH_OPERATORS);
      return file.bytes.getInt(operators);
    } catch (IndexOutOfBoundsException error) {
      throw new EngineException("the file must be a TFLite model; its first graph is missing");
    }
  }

  /** Returns the position of a table's field, a vector. */
  private int vector(int table, int field) {
    int vtable = table - bytes.getInt(table);
    int entry = VTABLE_HEADER_BYTES + field * Short.BYTES;
    // A field is absent if its offset is 0 or beyond the vtable.
    int offset = entry < bytes.getShort(vtable) ? bytes.getShort(vtable + entry) : 0;
    if (offset == 0) {
      throw new IndexOutOfBoundsException("the field is absent");
    }
    return follow(table + offset);
  }

  private int follow(int position) {
    return position + bytes.getInt(position);
  }
}
