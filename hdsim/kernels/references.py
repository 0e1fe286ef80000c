"""Named tuples by reference within kernels.

A named tuple is handed over by value otherwise, seven numbers for each of its arrays. With the state of a replay this
takes most of the time of a compilation. Tuples do not change, so that the result is the same.
"""

from __future__ import annotations

from typing import Any, TypeVar

from hdsim.kernels.compiling import before_compilation

_Tuple = TypeVar("_Tuple")


def by_reference(parts: _Tuple) -> _Tuple:
    """Returns a reference to a copy of a named tuple on the stack of the calling kernel; None stays None.

    Its attributes that are named tuples with tuples in them are references as well. As long as references are handed to
    parts of the kernel only, the copy is kept in registers. Another kernel begins with a copy of its own.
    """
    return parts


def _adapt_numba() -> None:
    """Has numba hand over pointers; one with other internals hands over values."""
    try:
        from numba.core import cgutils, types
        from numba.core.imputils import impl_ret_borrowed
        from numba.core.typing.templates import AttributeTemplate, infer_getattr
        from numba.extending import lower_builtin, lower_getattr_generic, models, register_model, type_callable
    except ImportError:
        from numba.extending import overload

        options: Any = {"_nrt": False}
        overload(by_reference, jit_options=options)(lambda parts: lambda parts: parts)
        return

    class Reference(types.Type):
        """Pointer to a named tuple."""

        def __init__(self, parts: Any) -> None:
            self.parts = parts
            super().__init__(f"Reference({parts})")

    def _is_referred_to(part: Any) -> bool:
        inner: Any = part if isinstance(part, types.BaseNamedTuple) else ()
        return any(isinstance(each, types.BaseTuple) for each in inner)

    @register_model(Reference)
    class _Pointer(models.PrimitiveModel):
        def __init__(self, manager: Any, reference: Any) -> None:
            # Data have whole bytes: a value of one bit would stay in memory.
            super().__init__(manager, reference, manager.lookup(reference.parts).get_data_type().as_pointer())

    @infer_getattr
    class _Attributes(AttributeTemplate):
        key = Reference

        def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
            parts = reference.parts
            if name not in parts.fields:
                return None
            part = parts.types[parts.fields.index(name)]
            return Reference(part) if _is_referred_to(part) else part

    @lower_getattr_generic(Reference)
    def _get(context: Any, builder: Any, reference: Any, pointer: Any, name: str) -> Any:
        place = reference.parts.fields.index(name)
        part, inner = reference.parts.types[place], cgutils.gep_inbounds(builder, pointer, 0, place)
        if _is_referred_to(part):
            return inner
        value = context.data_model_manager[part].load_from_data_pointer(builder, inner)
        return impl_ret_borrowed(context, builder, part, value)

    @type_callable(by_reference)
    def _type_of(context: Any) -> Any:
        def reference_to(parts: Any) -> Any:
            return parts if isinstance(parts, (types.NoneType, Reference)) else Reference(parts)

        return reference_to

    @lower_builtin(by_reference, types.Any)
    def _copy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (parts,), (value,) = signature.args, arguments
        if isinstance(parts, types.NoneType):
            return context.get_dummy_value()
        if isinstance(parts, Reference):
            return cgutils.alloca_once_value(builder, builder.load(value))
        return cgutils.alloca_once_value(builder, context.data_model_manager[parts].as_data(builder, value))


before_compilation(_adapt_numba)
