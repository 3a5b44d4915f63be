"""A failing process ends the others at once, and each prints the reason in one line.

By itself, JAX notices a lost process after 100 s and ends with a page of C++ frames.
"""

import shutil

import pytest
from PIL import Image

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def fail(machine, commands, code=2, **more):
    """The error line of each process; one that JAX ends has another exit code."""
    ended = machine.together(commands, 2, **more)
    assert [found for found, _ in ended] == [code] * len(commands), ended
    said = [[line for line in text.splitlines() if "rror: " in line] for _, text in ended]
    assert [len(lines) for lines in said] == [1] * len(commands), ended
    return [lines[0] for lines in said]


def with_code(flags, folder, line):
    """Flags of the text config with a line of code appended."""
    config = folder / "with_code.py"
    config.write_text(f"{(folder / 'text.py').read_text()}\n{line}\n")
    return [f"--config={config}", *flags[1:]]


def test_another_learning_rate(machine, data, tmp_path):
    flags = machine.flags("text", tmp_path / "run", data["text"])
    errors = fail(machine, [flags, [*flags, "--config.optimizer.learning_rate=0.5"]])
    for error in errors:
        assert "the config of process 1 differs from that of process 0" in error
    assert not (tmp_path / "run").exists()


def test_another_text_of_the_same_length(machine, data, tmp_path):
    """Each process reads the same path on the disk of its own machine."""
    folders = [tmp_path / "machine_0", tmp_path / "machine_1"]
    for folder in folders:
        shutil.copytree(data["text"], folder / "data")
    file = folders[1] / "data" / "ptb.train.txt"
    words = file.read_text()
    file.write_text(words.replace(" 7 ", " 8 ", 1))
    assert file.read_text() != words
    flags = machine.flags("text", tmp_path / "run", "data")
    for error in fail(machine, [flags, flags], folders=folders):
        assert "the data of process 1 differs from that of process 0" in error
    assert not (tmp_path / "run").exists()


def test_data_that_one_process_lacks(machine, data, tmp_path):
    commands = [machine.flags("text", tmp_path / "run", d) for d in (data["text"], "/nowhere")]
    errors = fail(machine, commands)
    assert "no ptb_word in /nowhere" in errors[1]
    assert errors[0].startswith("error: process 1 failed: no ptb_word in /nowhere")


def test_a_workdir_that_cannot_be_written(machine, data, tmp_path):
    (tmp_path / "file").touch()
    flags = machine.flags("text", tmp_path / "file" / "run", data["text"])
    errors = fail(machine, [flags, flags])
    assert errors[0].endswith("run can't be written: Not a directory")
    assert errors[1] == errors[0].replace("error: ", "error: process 0 failed: ")


def test_an_image_that_cannot_be_read(machine, data, tmp_path):
    """Only one process reads it, in the middle of training, while the other's devices wait."""
    images = tmp_path / "images"
    shutil.copytree(data["streamed"], images)
    path = images / "train" / "class_0" / "2.JPEG"
    Image.new("RGB", (20, 20)).save(path, "BMP")  # in which damage shows in decoding alone
    path.write_bytes(path.read_bytes()[:500])
    flags = machine.flags("streamed", tmp_path / "run", images, **{"data.repeats": 1})
    reported, own = sorted(fail(machine, [flags, flags]), key=lambda error: "failed: " not in error)
    assert "2.JPEG" in own
    assert reported.partition("failed: ")[2] == own.removeprefix("error: ")


def test_a_mistake_in_the_code(machine, data, tmp_path):
    """In one process while the other trains: its traceback, and a line from the other."""
    flags = machine.flags("text", tmp_path / "run", data["text"])
    mistaken = "from mimetic_jax.train.arm import ArmData as A; A.placed = lambda *_: 1 / 0"
    errors = fail(machine, [flags, with_code(flags, tmp_path, mistaken)], code=1)
    assert errors[0] == "error: process 1 failed: ZeroDivisionError: division by zero"
    assert errors[1] == "ZeroDivisionError: division by zero"
