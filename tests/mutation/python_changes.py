"""Mutants of Python: mutmut's operators, and how one of them gets into functions that are already loaded.

Of mutmut only the operators are used. Its own run copies the project, imports it again for each worker and asks pytest for each
mutant again, which here takes 20 seconds before the first test; a fork of a process that has all tests loaded takes none.
"""

import ast
import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.mutation.mutants import Change, Place

PROBE: Final = "_mutant_is_reached"
"""The name, among the builtins, of the function that a probed place calls with the mutant's number."""

Functions = dict[tuple[str, str], list[FunctionType]]
"""The loaded functions, by file and qualified name."""


def changes_of(path: str, source: str) -> Iterator[Change]:
    """Yield the mutants of the bodies of functions and methods."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    operators: dict[int, str] = {}
    visitor = _Visitor(
        [(kind, _named(operator, operators)) for kind, operator in mutation_operators], IgnoredCode(set(), set(), set())
    )
    wrapper.visit(visitor)
    module, positions = wrapper.module, wrapper.resolve(PositionProvider)
    names = dict(_qualified_names(module.body))
    lines = source.splitlines()
    for mutation in visitor.mutations:
        node, function = mutation.original_node, mutation.contained_by_top_level_function
        # Defaults of parameters and decorators are evaluated once, when the module is loaded.
        if function not in names or positions[node].start.line < positions[function.body].start.line:
            continue
        lineno = positions[node].start.line
        yield Change(
            Place(
                path=path,
                function=names[function],
                operator=operators[id(mutation.mutated_node)].removeprefix("operator_"),
                before=module.code_for_node(node).strip(),
                after=module.code_for_node(mutation.mutated_node).strip(),
                line=lines[lineno - 1].strip(),
            ),
            lineno,
            _mutator(module, node, mutation.mutated_node),
        )


class _Visitor(MutationVisitor):
    """mutmut leaves decorated functions out, because it cannot call its copies of them; here their code is replaced."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        return super()._skip_node_and_children(node.with_changes(decorators=()) if isinstance(node, cst.FunctionDef) else node)


def _named(operator: Callable[[Any], Iterable[cst.CSTNode]], operators: dict[int, str]) -> Callable[[Any], Iterable[cst.CSTNode]]:
    """Let an operator leave its name for each node that it makes."""

    def named(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        for mutated in operator(node):
            operators[id(mutated)] = operator.__name__
            yield mutated

    return named


def _qualified_names(body: Iterable[cst.CSTNode], prefix: str = "") -> Iterator[tuple[cst.FunctionDef, str]]:
    for statement in body:
        if isinstance(statement, cst.FunctionDef):
            yield statement, prefix + statement.name.value
        elif isinstance(statement, cst.ClassDef):
            yield from _qualified_names(statement.body.body, f"{prefix}{statement.name.value}.")


def _mutator(module: cst.Module, node: cst.CSTNode, mutated: cst.CSTNode) -> Callable[[], str]:
    def mutate() -> str:
        changed = module.deep_replace(node, mutated)
        assert isinstance(changed, cst.Module)
        return changed.code

    return mutate


# Into loaded functions -------------------------------------------------------------------------------


def loaded_functions(files: Iterable[str]) -> Functions:
    """Find all functions that were made from these files, however they were decorated, registered or bound."""
    wanted = set(files)
    found: Functions = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in wanted:
            found[each.__code__.co_filename, each.__code__.co_qualname].append(each)
    return found


def replace_code(functions: Functions, file: str, source: str, changed: CodeType, function: str | None = None) -> bool:
    """Give loaded functions the code of a changed source; return whether the function, or any, got it.

    Args:
        source: as the functions were loaded from it.
        function: only this function, by its qualified name, and what is defined in it; None for all of the file.
    """
    before, after = (_codes_by_name(code) for code in (compile(source, file, "exec", dont_inherit=True), changed))
    is_replaced = False
    for name, originals in before.items():
        if function not in (None, name) and not name.startswith(f"{function}.<locals>."):
            continue
        for original, code in zip(originals, after.get(name, []), strict=False):
            for loaded in functions.get((file, name), []):
                if loaded.__code__.co_firstlineno == original.co_firstlineno and len(loaded.__code__.co_freevars) == len(
                    code.co_freevars
                ):
                    loaded.__code__ = code
                    is_replaced = True
    return is_replaced


def _codes_by_name(code: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = defaultdict(list)
    waiting = [code]
    while waiting:
        one = waiting.pop(0)
        found[one.co_qualname].append(one)
        waiting.extend(constant for constant in one.co_consts if isinstance(constant, CodeType))
    return found


def probed_code(file: str, source: str, lines: Iterable[tuple[int, int]]) -> CodeType:
    """Return the code of a source with a call of PROBE before the statement on each of these lines.

    Args:
        lines: a mutant's number and its line.
    """
    tree = ast.parse(source)
    for number, line in lines:
        body, place = _innermost(tree, line)
        call = ast.parse(f"{PROBE}({number})").body[0]
        body.insert(place, ast.increment_lineno(ast.copy_location(call, body[place]), 0))
        for node in ast.walk(call):
            ast.copy_location(node, body[place + 1])
    return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)


def _innermost(tree: ast.Module, line: int) -> tuple[list[ast.stmt], int]:
    """Return the innermost list of statements, and the place in it, that has this line."""
    best: tuple[list[ast.stmt], int] = tree.body, 0
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        for _, value in ast.iter_fields(node):
            for place, child in enumerate(value if isinstance(value, list) else []):
                if isinstance(child, ast.AST) and not hasattr(child, "lineno"):
                    waiting.append(child)
                elif isinstance(child, ast.stmt | ast.excepthandler) and child.lineno <= line <= (child.end_lineno or 0):
                    waiting.append(child)
                    if isinstance(child, ast.stmt):
                        best = value, place
    return best
