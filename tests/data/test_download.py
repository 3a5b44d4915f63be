"""Downloads from a server of this process."""

import gc
import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from mimetic_jax.data import download, load_dataset
from mimetic_jax.data.download import REMOTE, Remote
from mimetic_jax.data.sets.load import load_own
from mimetic_jax.data.text.corpus import load_text
from tests.data.made import refused


def tar():
    written, content = io.BytesIO(), b"pixels"
    with tarfile.open(fileobj=written, mode="w:gz") as file:
        entry = tarfile.TarInfo("inside/file")
        entry.size = len(content)
        file.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def zipped():
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        file.writestr("inside/file", b"pixels")
    return written.getvalue()


@pytest.fixture
def server(monkeypatch):
    """Publishes one file, as the data set "thing"; `asked` are the paths of requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            content = files.get(self.path[1:])
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    files, asked = {}, []
    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, daemon=True).start()

    def publish(name, content, md5=None, **options):
        files[name] = content
        url = f"http://127.0.0.1:{serving.server_port}/{name}"
        remote = Remote(url, md5 or hashlib.md5(content).hexdigest(), **options)
        monkeypatch.setitem(REMOTE, "thing", (remote,))

    publish.asked, publish.files = asked, files
    yield publish
    serving.shutdown()
    serving.server_close()


def arrays(folder):
    """What is made of the archive."""
    return {"x": np.frombuffer((folder / "inside" / "file").read_bytes(), np.uint8)}


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_file_arrives_once_where_it_is_read(server, tmp_path):
    server("thing.bin", b"content", folder="below")
    for _ in range(2):
        assert download.download("thing", str(tmp_path / "new")) == tmp_path / "new"
        assert contents(tmp_path / "new") == {"below/thing.bin": b"content"}
    assert server.asked == ["/thing.bin"]


def test_another_file_than_the_published_one_is_refused(server, tmp_path):
    server("thing.bin", b"an error page", md5="0" * 32)
    found = hashlib.md5(b"an error page").hexdigest()
    refused(lambda: download.download("thing", str(tmp_path)), "0" * 32, found)
    assert not contents(tmp_path)


@pytest.mark.parametrize(("name", "pack"), [("thing.tar.gz", tar), ("thing.zip", zipped)])
def test_an_archive_is_unpacked_once(server, tmp_path, name, pack):
    content = pack()
    server(name, content, gives="inside")
    for _ in range(2):
        download.download("thing", str(tmp_path))
        expected = {f"downloads/{name}": content, "inside/file": b"pixels"}
        assert contents(tmp_path) == expected
    assert len(server.asked) == 1


def test_arrays_are_made_of_an_archive_whose_checksum_is_right(server, tmp_path):
    server("thing.tar.gz", tar(), gives="thing.npz", arrays=arrays)
    download.download("thing", str(tmp_path))
    assert np.load(tmp_path / "thing.npz")["x"].tobytes() == b"pixels"
    assert set(contents(tmp_path)) == {"downloads/thing.tar.gz", "thing.npz"}
    server("other.tar.gz", tar(), "0" * 32, gives="other.npz", arrays=lambda _: 1 / 0)
    refused(lambda: download.download("thing", str(tmp_path)), "0" * 32)


def test_a_download_that_ends_in_unpacking_is_repeated_whole(server, tmp_path, monkeypatch):
    server("thing.tar.gz", tar(), gives="inside")
    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extractall", lambda *_, **options: 1 / 0)
        refused(lambda: download.download("thing", str(tmp_path)), "can't download http")
    assert list(contents(tmp_path)) == ["downloads/thing.tar.gz"]
    download.download("thing", str(tmp_path))
    assert contents(tmp_path)["inside/file"] == b"pixels"


# The connection of an answer that is an error is left to the garbage collector by pooch.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_not_there(server, tmp_path, capsys):
    server("thing.bin", b"content")
    server.files.clear()
    refused(lambda: download.download("thing", str(tmp_path)), "thing.bin", "404")
    gc.collect()
    with pytest.raises(SystemExit) as ended:
        download.main(["thingy", f"--data_dir={tmp_path}"])
    assert ended.value.code == 2
    assert "did you mean 'thing'?" in capsys.readouterr().err


def test_the_command_line_and_the_errors_name_each_other(server, tmp_path, capsys):
    server("thing.bin", b"content")
    download.main(["thing", f"--data_dir={tmp_path}"])
    assert f"train with --data-dir={tmp_path}" in capsys.readouterr().out
    for load, name in ((load_dataset, "tiny_imagenet"), (load_text, "wikitext2")):
        command = f"mimetic download {name} --data-dir={tmp_path}"
        refused(lambda load=load, name=name: load(name, str(tmp_path)), command)


@pytest.mark.parametrize("given", ["", "cifar-10-batches-py"])
def test_an_unpacked_archive_is_named_with_the_command_that_reads_it(tmp_path, given):
    (tmp_path / "cifar-10-batches-py").mkdir()
    command = f"mimetic download cifar10 --data-dir={tmp_path} (reads the files of cifar-10-"
    refused(lambda: load_dataset("cifar10", str(tmp_path / given)), command)
    words = f"the files of cifar10: {command}"
    refused(lambda: load_own("folder", str(tmp_path / given), 32), words)


def test_files_that_are_unpacked_already_are_not_downloaded(server, tmp_path):
    """With the published checksums alone: pickles of somebody else are never read."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/file").write_bytes(b"12")

    def get(md5):
        options = {"gives": "t.npz", "arrays": arrays, "unpacked": {"inside/file": md5}}
        server("thing.tar.gz", tar(), "0" * 32, **options)
        download.download("thing", str(tmp_path))

    refused(lambda: get("0" * 32), "can't download")
    assert server.asked
    server.asked.clear()
    get(hashlib.md5(b"12").hexdigest())
    assert not server.asked
    np.testing.assert_array_equal(np.load(tmp_path / "t.npz")["x"], [49, 50])
