"""Names of files in a .zip, also where its maker did not say that they are UTF-8."""

from __future__ import annotations

import zipfile

_SAYS_UTF8 = 0x800


def zip_member_name(member: zipfile.ZipInfo) -> str:
    """The name of ``member``; unmarked bytes count as UTF-8 where they can be that, else as cp437.

    Info-ZIP on Linux stores UTF-8 without the mark (bit 11 of the flags, APPNOTE.TXT 4.4.4), which
    ``zipfile`` reads as cp437. Text in cp437 is hardly ever valid UTF-8 by chance.
    """
    if member.flag_bits & _SAYS_UTF8:
        return member.filename
    try:
        return member.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return member.filename
