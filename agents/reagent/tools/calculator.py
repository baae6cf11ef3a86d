"""Evaluates arithmetic expressions by their syntax tree; nothing is executed."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from reagent.errors import ToolError

Number = int | float
MAX_CHARS = 200
MAX_DIGITS = 30
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def evaluate(expression: str, max_operations: int | None = None) -> Number:
    """The value of an arithmetic expression: numbers, + - * / // % **, signs and parentheses.
    Raises ToolError: not such an expression, too long, too many operations, division by zero, or a result too large."""
    if len(expression) > MAX_CHARS:
        raise ToolError(f"the expression is longer than {MAX_CHARS} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError("not an arithmetic expression") from error
    operations = sum(isinstance(node, ast.BinOp) for node in ast.walk(tree))
    if max_operations is not None and operations > max_operations:
        raise ToolError(f"at most {max_operations} operation{'s' * (max_operations > 1)} at a time")
    try:
        return _value(tree.body)
    except ZeroDivisionError as error:
        raise ToolError("division by zero") from error
    except OverflowError as error:
        raise ToolError("the result is too large") from error


def _value(node: ast.expr) -> Number:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and left and abs(right * math.log10(abs(left))) > MAX_DIGITS:
            raise ToolError("the result is too large")  # before it is computed
        return _bounded(_BINARY[type(node.op)](left, right))
    raise ToolError("only numbers and + - * / // % ** ( ) are allowed")


def _bounded(value: Any) -> Number:
    if isinstance(value, complex) or not math.isfinite(value):
        raise ToolError("the result is not a real number")
    if abs(value) >= 10**MAX_DIGITS:
        raise ToolError("the result is too large")
    return value


def format_number(value: Number) -> str:
    """An integer without a point, also where a division came out even; otherwise ten significant digits."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.10g}"
