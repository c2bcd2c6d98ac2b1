"""Give a static file int8 outputs, for NPUs without DEQUANTIZE.

Readers compute (value - zero point) * scale, with the output tensor's numbers in the file.
"""

from __future__ import annotations

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.recipes import RECIPES, Recipe
from pocketbert_export.tflite.graph import operator_name, producer_positions, read_model, write_model


def check_output_type(output_type: str, recipe: Recipe) -> None:
    """Raises a `UserError` if a recipe's files cannot have an output type."""
    if output_type not in ("float32", "int8"):
        raise UserError(f"{argument('output_type')} must be float32 or int8; received {output_type}")
    # With all operators, the last one is int8; in other recipes, small heads are float32.
    if output_type == "int8" and recipe.operators != "all":
        recipes = " or ".join(
            argument("recipe", recipe.name) for recipe in RECIPES.values() if recipe.operators == "all"
        )
        raise UserError(f"{argument('output_type', 'int8')} needs {recipes}; received {recipe.name}")


def with_int8_outputs(content: bytes) -> bytes:
    """Returns the file without the operators that turn its outputs into float32.

    Args:
      content: content of a static `.tflite` file.
    Raises:
      UserError: an operator computes an output in float32.
    """
    model = read_model(content)
    for number, graph in enumerate(model.subgraphs):
        producers = producer_positions(graph)
        replaced, dropped = {}, set()
        for output in map(int, graph.outputs):
            position = producers[output]
            operator = graph.operators[position]
            if (name := operator_name(model, operator)) != "DEQUANTIZE":
                raise UserError(
                    f"{argument('output_type', 'int8')} needs a last operator that computes in int8; received {name}; "
                    "use float32"
                )
            replaced[output] = int(operator.inputs[0])
            dropped.add(position)
        graph.operators = [other for position, other in enumerate(graph.operators) if position not in dropped]
        graph.outputs = [replaced[int(output)] for output in graph.outputs]
        for signature in model.signatureDefs:
            for named in signature.outputs if signature.subgraphIndex == number else ():
                named.tensorIndex = replaced[int(named.tensorIndex)]
    return write_model(model)
