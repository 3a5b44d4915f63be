"""The control of an arm is found by its scheme."""

from typing import Any

from mimetic_jax.schemes import Mimetic, NormMatched, SinCos, to_dict
from mimetic_jax.train.controls import controls


def of(*schemes: Any, **fields: Any) -> dict[str, Any]:
    return {"task": "images", "scheme": [to_dict(scheme) for scheme in schemes], **fields}


def test_a_control_is_found_by_its_scheme_and_by_nothing_else() -> None:
    mimetic, positions = Mimetic(), SinCos()
    found = controls(
        {
            "mimetic": of(positions, mimetic),
            "norm_matched": of(positions, NormMatched(Mimetic(beta_vo=0.0))),
            "any name": of(positions, NormMatched(mimetic)),
            "learned": of(mimetic),
            "larger": of(positions, mimetic, batch=64),
            "default": of(),
        }
    )
    assert found == {"mimetic": "any name"}


def test_of_two_controls_that_which_lacks_all_structure_counts() -> None:
    one, other = Mimetic(), Mimetic(beta_vo=0.0)
    found = controls(
        {
            "both": of(one, other),
            "half": of(NormMatched(one), other),
            "none": of(NormMatched(one), NormMatched(other)),
        }
    )
    assert found == {"both": "none", "half": "none"}
