"""Google Cloud Storage in memory, on loopback: the part of its JSON API that training uses.

Generations are checked as strictly as by the real service: TensorStore's checkpoints rely on
conditions such as ifGenerationMatch.

    python tests/bucket_server.py

prints its address, and serves an empty gs://bucket until it is killed.
"""

import email.parser
import http.server
import json
import re
import threading
import urllib.parse
from typing import Any


class Bucket:
    """Objects by name, each with a generation."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.generation = 1_000_000
        self.uploads: dict[str, str] = {}
        self.lock = threading.RLock()

    def write(self, name: str, content: bytes) -> dict[str, Any]:
        self.generation += 1
        self.objects[name] = (content, self.generation)
        return self.about(name)

    def about(self, name: str) -> dict[str, Any]:
        content, generation = self.objects[name]
        return {
            "kind": "storage#object",
            "bucket": "bucket",
            "name": name,
            "id": f"bucket/{name}/{generation}",
            "size": str(len(content)),
            "generation": str(generation),
            "metageneration": "1",
            "timeCreated": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
        }

    def refused(self, name: str, query: dict[str, str]) -> int:
        """The HTTP status of a failed condition on the generation; 0 if it holds."""
        now = self.objects[name][1] if name in self.objects else 0
        if "ifGenerationMatch" in query and int(query["ifGenerationMatch"]) != now:
            return 412
        if "ifGenerationNotMatch" in query and int(query["ifGenerationNotMatch"]) == now:
            return 304
        return 0

    def listed(self, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = [
            name
            for name in sorted(self.objects)
            if name.startswith(prefix)
            and name >= query.get("startOffset", "")
            and (name < query["endOffset"] if query.get("endOffset") else True)
        ]
        folders: set[str] = set()
        items = []
        for name in names:
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest[: rest.index(delimiter) + 1])
            else:
                items.append(self.about(name))
        return {"kind": "storage#objects", "items": items, "prefixes": sorted(folders)}


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    bucket = Bucket()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        path, query = self._asked()
        with self.bucket.lock:
            if re.fullmatch(r"/storage/v1/b/bucket", path):
                return self._json({"name": "bucket", "location": "US", "storageClass": "STANDARD"})
            if re.fullmatch(r"/storage/v1/b/bucket/o/?", path):
                return self._json(self.bucket.listed(query))
            if not (name := self._object(path)) or name not in self.bucket.objects:
                return self._status(404)
            if refused := self.bucket.refused(name, query):
                return self._status(refused)
            if query.get("alt") != "media":
                return self._json(self.bucket.about(name))
            content, generation = self.bucket.objects[name]
        whole = len(content)
        headers = {"x-goog-generation": str(generation), "x-goog-metageneration": "1"}
        if match := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            if match[1]:
                first, last = int(match[1]), min(int(match[2] or whole - 1), whole - 1)
            else:
                first, last = max(whole - int(match[2]), 0), whole - 1
            if first >= whole:
                return self._status(416)
            headers["Content-Range"] = f"bytes {first}-{last}/{whole}"
            content = content[first : last + 1]
            return self._send(206, content, headers)
        return self._send(200, content, headers)

    def do_POST(self) -> None:
        path, query = self._asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path.startswith("/batch/"):
            return self._batch(body)
        with self.bucket.lock:
            if match := re.fullmatch(r"/storage/v1/b/bucket/o/(.+)/rewriteTo/b/\w+/o/(.+)", path):
                source, target = map(urllib.parse.unquote, match.groups())
                if source not in self.bucket.objects:
                    return self._status(404)
                resource = self.bucket.write(target, self.bucket.objects[source][0])
                return self._json({"done": True, "resource": resource})
            kind = query.get("uploadType")
            if kind == "multipart":
                head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
                parts = email.parser.BytesParser().parsebytes(head + body).get_payload()
                name = json.loads(parts[0].get_payload())["name"]
                return self._write(name, query, parts[1].get_payload(decode=True))
            if kind == "resumable" and "upload_id" in query:
                return self._write(self.bucket.uploads[query["upload_id"]], query, body)
            if kind == "resumable":
                number = str(len(self.bucket.uploads))
                self.bucket.uploads[number] = query.get("name") or json.loads(body)["name"]
                where = (
                    f"http://{self.headers['Host']}{path}?uploadType=resumable&upload_id={number}"
                )
                return self._send(200, b"{}", {"Location": where})
            return self._write(query["name"], query, body)

    do_PUT = do_POST

    def do_DELETE(self) -> None:
        path, query = self._asked()
        self._status(self._delete(path, query))

    def _delete(self, path: str, query: dict[str, str]) -> int:
        with self.bucket.lock:
            name = self._object(path)
            if not name or name not in self.bucket.objects:
                return 404
            if refused := self.bucket.refused(name, query):
                return refused
            del self.bucket.objects[name]
            return 204

    def _batch(self, body: bytes) -> None:
        """Several deletions in one request, answered part by part."""
        answers = []
        for path in re.findall(rb"DELETE (\S+) HTTP", body):
            status = self._delete(urllib.parse.urlsplit(path.decode()).path, {})
            answers.append(
                "--parts\r\nContent-Type: application/http\r\n\r\n"
                f"HTTP/1.1 {status} {'No Content' if status == 204 else 'Not Found'}\r\n\r\n\r\n"
            )
        content = ("".join(answers) + "--parts--").encode()
        self._send(200, content, {"Content-Type": "multipart/mixed; boundary=parts"})

    def _write(self, name: str, query: dict[str, str], content: bytes) -> None:
        if refused := self.bucket.refused(name, query):
            return self._status(refused)
        return self._json(self.bucket.write(name, content))

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urllib.parse.urlsplit(self.path)
        return parts.path, dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))

    def _object(self, path: str) -> str:
        match = re.fullmatch(r"(?:/download)?/storage/v1/b/bucket/o/(.+)", path)
        return urllib.parse.unquote(match[1]) if match else ""

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _status(self, status: int) -> None:
        body = b"" if status in (204, 304) else b'{"error": {"message": "no", "errors": []}}'
        self._send(status, body, {"Content-Type": "application/json"} if body else {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    """Clients open many connections at once."""

    request_queue_size = 128


def main() -> None:
    """Serve on a free port."""
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
