"""Downloads from a server of this process: broken, damaged, hostile."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mimetic_jax.data import download, load_dataset
from mimetic_jax.data.remote import REMOTE, Remote
from mimetic_jax.data.text.corpus import load_text
from mimetic_jax.errors import InputError


def archive(name, content=b"pixels"):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


@pytest.fixture
def server(monkeypatch):
    """Serves `files`; `breaks` says after how many bytes the next answers end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Range"]))
            content = files.get(self.path[1:])
            start = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1])
            if content is None or start >= len(content):
                self.send_error(404 if content is None else 416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + breaks.pop() if breaks else None
            self.wfile.write(content[start:end])

        def log_message(self, *args):
            pass

    files, breaks, asked = {}, [], []
    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, daemon=True).start()

    def publish(name, content, md5=None, **options):
        files[name] = content
        url = f"http://127.0.0.1:{serving.server_port}/{name}"
        remote = Remote(url, md5 or hashlib.md5(content).hexdigest(), **options)
        monkeypatch.setitem(REMOTE, "thing", (remote,))

    publish.breaks, publish.asked = breaks, asked
    yield publish
    serving.shutdown()
    serving.server_close()


def test_a_broken_download_continues(server, tmp_path):
    content = bytes(range(256)) * 40
    server("thing.bin", content, folder="below")
    server.breaks[:] = [5000, 3000]
    for have in (3000, 8000):
        with pytest.raises(InputError, match=rf"thing.bin.* {have:,}|{have} bytes"):
            download.download("thing", str(tmp_path))
    download.download("thing", str(tmp_path))
    assert (tmp_path / "below" / "thing.bin").read_bytes() == content
    assert [start for _, start in server.asked] == ["bytes=0-", "bytes=3000-", "bytes=8000-"]
    download.download("thing", str(tmp_path))
    assert len(server.asked) == 3  # it is there


def test_all_bytes_but_no_rename(server, tmp_path):
    """Killed between the last byte and the check."""
    server("thing.bin", b"content")
    (tmp_path / "thing.bin.part").write_bytes(b"content")
    download.download("thing", str(tmp_path))
    assert (tmp_path / "thing.bin").read_bytes() == b"content"


def test_another_file_is_kept_and_named(server, tmp_path):
    server("thing.bin", b"an error page", md5="0" * 32)
    found = hashlib.md5(b"an error page").hexdigest()
    with pytest.raises(InputError, match=f"its MD5 is {found}, not 000.*thing.bin.damaged"):
        download.download("thing", str(tmp_path))
    assert (tmp_path / "thing.bin.damaged").read_bytes() == b"an error page"
    assert not (tmp_path / "thing.bin").exists()


def test_archives_are_unpacked_once(server, tmp_path):
    server("thing.tar.gz", archive("inside/file"), gives="inside")
    for _ in range(2):
        assert download.download("thing", str(tmp_path)) == tmp_path
        assert (tmp_path / "inside" / "file").read_bytes() == b"pixels"
    assert len(server.asked) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"downloads", "inside"}


@pytest.mark.parametrize("content", [archive("../inside/file"), b"not an archive"])
def test_hostile_archives_write_nothing(server, tmp_path, content):
    server("thing.tar.gz", content, gives="inside")
    with pytest.raises(InputError, match=r"thing.tar.gz can't be unpacked: "):
        download.download("thing", str(tmp_path / "data"))
    assert {path.name for path in tmp_path.rglob("*")} == {"data", "downloads", "thing.tar.gz"}


def test_what_is_not_there(server, tmp_path, capsys):
    server("thing.bin", b"content")
    server.asked.clear()
    remote = REMOTE["thing"][0]
    REMOTE["thing"] = (Remote(f"{remote.url}.gone", remote.md5),)
    with pytest.raises(InputError, match=r"thing.bin.gone: HTTP Error 404"):
        download.download("thing", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        download.main(["thingy", f"--data_dir={tmp_path}"])
    assert ended.value.code == 2
    assert "did you mean 'thing'?" in capsys.readouterr().err


def test_the_command_line_and_the_errors_name_each_other(server, tmp_path, capsys):
    server("thing.bin", b"content")
    download.main(["thing", f"--data_dir={tmp_path}"])
    assert f"train with --config.data.dir={tmp_path}" in capsys.readouterr().out
    command = rf"mimetic download {{}} --data-dir={tmp_path}"
    for load, name in (
        (load_dataset, "cifar10"),
        (load_dataset, "tiny_imagenet"),
        (load_text, "wikitext2"),
    ):
        with pytest.raises(InputError, match=command.format(name)):
            load(name, str(tmp_path))
