"""Small files that declare or unpack to much are refused in one line, before memory is taken."""

import gzip
import io
import json
import struct
import sys
import tarfile
import threading
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow
import pytest
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet
from scipy.io import savemat

from cclp.data import budget
from cclp.data.budget import Budget, NoRoom, SharedBudget, check_room, most_bytes
from cclp.runs.record import read_json
from tests import children
from tests.memory import MOST, Measure, measuring
from tests.records import write_embedding, write_predictions, write_run

LARGE = 240 * 2**20  # bytes: more than is allowed


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measure]:
    with measuring(tmp_path_factory.mktemp("cache")) as found:
        yield found


def zeros_npy(dtype: str, *shape: int) -> Iterator[bytes]:
    """The bytes of an .npy file of zeros, part by part."""
    header = io.BytesIO()
    array: NDArray[Any] = np.zeros(0, dtype)
    about = {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    yield header.getvalue()
    left = int(np.prod(shape)) * array.itemsize
    while left > 0:
        yield bytes(min(left, 2**24))
        left -= 2**24


def write_npz(path: Path, kind: int, **arrays: Iterator[bytes]) -> Path:
    with zipfile.ZipFile(path, "w", kind, compresslevel=9) as archive:
        for name, parts in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                for part in parts:
                    file.write(part)
    return path


def npz_by_bzip2(path: Path) -> Path:
    return write_npz(path / "a.npz", zipfile.ZIP_BZIP2, X=zeros_npy("u1", LARGE // 8))


def npz_by_lzma(path: Path) -> Path:
    return write_npz(path / "a.npz", zipfile.ZIP_LZMA, X=zeros_npy("u1", LARGE // 8))


def npz_by_deflate(path: Path) -> Path:
    return write_npz(path / "a.npz", zipfile.ZIP_DEFLATED, X=zeros_npy("u1", LARGE))


def npz_that_lies(path: Path) -> Path:
    """Declares a terabyte and holds nothing."""
    header = next(zeros_npy("f8", 2**37))
    return write_npz(path / "a.npz", zipfile.ZIP_DEFLATED, X=iter([header]))


def npz_with_a_long_header(path: Path) -> Path:
    begin = b"\x93NUMPY\x02\x00" + struct.pack("<I", LARGE)
    parts = iter([begin, *([b" " * 2**24] * 16)])
    return write_npz(path / "a.npz", zipfile.ZIP_DEFLATED, X=parts)


def npz_of_bools(path: Path) -> Path:
    count = 60 * 2**20
    x, y = zeros_npy("?", count // 10, 10), zeros_npy("?", count // 10)
    return write_npz(path / "a.npz", zipfile.ZIP_DEFLATED, X=x, y=y)


def npz_of_many_samples(path: Path) -> Path:
    count = 40 * 2**20
    return write_npz(
        path / "a.npz", zipfile.ZIP_DEFLATED, X=zeros_npy("?", count, 1), y=zeros_npy("?", count)
    )


def mat_of_bytes_as_doubles(path: Path) -> Path:
    content = io.BytesIO()
    savemat(content, {"X": np.zeros(30 * 2**20, np.uint8)}, do_compression=False)
    matrix = bytearray(content.getvalue())
    matrix[128 + 16] = 6  # the class of the array: double; stored as bytes all the same
    element = zlib.compress(matrix[128:])
    packed = bytes(matrix[:128]) + struct.pack("<II", 15, len(element)) + element
    (path / "a.mat").write_bytes(packed)
    return path / "a.mat"


def write_mat(path: Path, *parts: tuple[int, bytes]) -> Path:
    """A file of one compressed matrix of these elements."""
    matrix = b"".join(struct.pack("<II", kind, len(part)) + part for kind, part in parts)
    element = zlib.compress(struct.pack("<II", 14, len(matrix)) + matrix)
    begin = b" " * 124 + b"\x00\x01IM" + struct.pack("<II", 15, len(element))
    (path / "a.mat").write_bytes(begin + element)
    return path / "a.mat"


def mat_of_nothing_often(path: Path) -> Path:
    """Eight bytes of an element without content become an object of 300."""
    return write_mat(path, (0, bytes(8 * 2 * 10**6)))


def mat_of_many_dimensions(path: Path) -> Path:
    dimensions = struct.pack("<i", 1000) * 6 * 10**6
    flags = struct.pack("<II", 6, 0)
    return write_mat(path, (6, flags), (5, dimensions), (1, b"X" + bytes(7)), (2, bytes(8)))


def mat_of_many_elements(path: Path) -> Path:
    content = io.BytesIO()
    zeros = np.zeros(50 * 2**20, np.uint8)
    savemat(content, {f"X{number}": zeros for number in range(5)}, do_compression=True)
    (path / "a.mat").write_bytes(content.getvalue())
    return path / "a.mat"


def gzip_of_zeros(path: Path) -> Path:
    with gzip.open(path / "a.gz", "wb") as file:
        for _ in range(16):
            file.write(bytes(2**24))
    return path / "a.gz"


def csv_of_short_lines(path: Path) -> Path:
    (path / "a.csv.gz").write_bytes(gzip.compress(b"size,kind\n" + b"1,a\n" * 2**20))
    return path / "a.csv.gz"


def csv_of_commas(path: Path) -> Path:
    line = b"," * 2**20 + b"\n"
    (path / "a.csv.gz").write_bytes(gzip.compress(b"kind" + line + line * 8))
    return path / "a.csv.gz"


def csv_of_one_long_line(path: Path) -> Path:
    """Two bytes of a cell become 16 in two lists, before anybody counts the columns."""
    (path / "a.csv.gz").write_bytes(gzip.compress(b"a," * 12 * 10**6 + b"kind\n1,a\n"))
    return path / "a.csv.gz"


def csv_that_becomes_wide(path: Path) -> Path:
    """A few hundred columns of thirty choices each."""
    letters = "abcdefghijklmnopqrstuvwxyzABCD"
    lines = [",".join([f"c{n}" for n in range(400)] + ["kind"])]
    lines += [",".join([letters[n % 30]] * 400 + ["xy"[n % 2]]) for n in range(5_000)]
    (path / "a.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return path / "a.csv.gz"


def parquet_of_one_long_text(path: Path) -> Path:
    words = pyarrow.array(["x" * 2**20])
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 9000, "int32"), words)
    kinds = pyarrow.array(["a", "b"] * 4500)
    parquet.write_table(pyarrow.table({"text": column, "kind": kinds}), path / "a.parquet")
    return path / "a.parquet"


def parquet_of_many_rows(path: Path) -> Path:
    table = pyarrow.table({"size": np.zeros(2 * 10**6), "kind": np.zeros(2 * 10**6)})
    parquet.write_table(table, path / "a.parquet", compression="zstd")
    return path / "a.parquet"


def varint(value: int, length: int = 0) -> bytes:
    """A number as Thrift has it, padded to a length."""
    parts: list[int] = []
    value *= 2
    while value or not parts or len(parts) < length:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts[:-1], parts[-1] & 127])


def parquet_whose_footer_lies(path: Path) -> Path:
    """A page of 240 MB; the footer says that it unpacks to a byte."""
    table = pyarrow.table({"text": ["x" * (LARGE // 2)] * 2, "kind": ["a", "b"]})
    file = path / "a.parquet"
    settings: dict[str, Any] = {"use_dictionary": ["kind"], "write_statistics": False}
    parquet.write_table(table, file, compression="gzip", data_page_size=2**30, **settings)
    group = parquet.read_metadata(file).row_group(0)
    content = file.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:]
    for size in (group.total_byte_size, group.column(0).total_uncompressed_size):
        packed = varint(size)
        assert packed in footer
        footer = footer.replace(packed, varint(1, len(packed)))
    file.write_bytes(content[:start] + footer)
    assert parquet.read_metadata(file).row_group(0).total_byte_size == 1
    return file


def parquet_of_wide_values(path: Path) -> Path:
    """Texts of one length, 32 kB, that are stored once for all rows."""
    word = pyarrow.array([b"x" * 2**15], pyarrow.binary(2**15))
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 9000, "int32"), word)
    table = pyarrow.table({"text": column, "kind": ["a", "b"] * 4500})
    parquet.write_table(table, path / "a.parquet", store_schema=False)
    return path / "a.parquet"


def parquet_of_shared_beginnings(path: Path) -> Path:
    """Texts of 32 kB that begin as the one before, and end there."""
    table = pyarrow.table({"text": ["x" * 2**15] * 9000, "kind": ["a", "b"] * 4500})
    parquet.write_table(
        table, path / "a.parquet", use_dictionary=False, data_page_size=2**30,
        column_encoding={"text": "DELTA_BYTE_ARRAY", "kind": "PLAIN"},
    )  # fmt: skip
    return path / "a.parquet"


def parquet_of_a_long_list(path: Path) -> Path:
    """Twenty million numbers in a cell."""
    lists = pyarrow.ListArray.from_arrays([0, 10, 20_000_000], np.zeros(20_000_000, np.int32))
    table = pyarrow.table({"list": lists, "kind": ["a", "b"]})
    parquet.write_table(table, path / "a.parquet")
    return path / "a.parquet"


def parquet_with_a_large_footer(path: Path) -> Path:
    """A group of rows of 400,000 columns, three bytes each, that takes 600 MB."""
    count = 400_000
    schema, columns = b"\x19\x1c\x48\0\0", b"\x19\xfc" + varint(count // 2) + b"\x26\0\0" * count
    group = b"\x19\x1c" + columns + b"\x16\0" * 2 + b"\0"
    footer = b"\x15\x02" + schema + b"\x16\0" + group + b"\0"
    content = b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"
    (path / "a.parquet").write_bytes(content)
    return path / "a.parquet"


def write_xlsx(path: Path, part: str, before: bytes, more: bytes) -> Path:
    """A workbook of one sheet in which something is inserted."""
    content, book = io.BytesIO(), openpyxl.Workbook()
    book.active.append(["size", "kind"])
    book.save(content)
    with zipfile.ZipFile(content) as old, zipfile.ZipFile(
        path / "a.xlsx", "w", zipfile.ZIP_DEFLATED
    ) as new:  # fmt: skip
        for item in old.infolist():
            text = old.read(item)
            if item.filename.endswith(part):
                assert before in text
                text = text.replace(before, more + before, 1)
            new.writestr(item.filename, text)
    return path / "a.xlsx"


def xlsx_of_blanks(path: Path) -> Path:
    return write_xlsx(path, "sheet1.xml", b"</sheetData>", b" " * 120 * 2**20)


def xlsx_of_a_long_row(path: Path) -> Path:
    """Four bytes of XML become an object of 300 bytes, before openpyxl gives the row away."""
    return write_xlsx(path, "sheet1.xml", b"</row>", b"<c/>" * 10**6)


def xlsx_of_styles(path: Path) -> Path:
    return write_xlsx(path, "styles.xml", b"</cellXfs>", b"<xf/>" * 400_000)


def tar_with_a_long_name(path: Path) -> Path:
    name = tarfile.TarInfo("x")
    name.type, name.size = tarfile.XHDTYPE, LARGE
    with gzip.open(path / "a.tar.gz", "wb") as file:
        file.write(name.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(16):
            file.write(b"9" * 2**24)
    return path / "a.tar.gz"


def tar_with_gaps(path: Path) -> Path:
    """Two bytes of a list of gaps become an object of 60."""
    places = b"0\n" * 8 * 10**6
    member = tarfile.TarInfo("a/b.png")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                          "GNU.sparse.name": "a/b.png", "GNU.sparse.realsize": "9"}  # fmt: skip
    content = b"%d\n" % (len(places) // 4) + places
    member.size = len(content)
    with tarfile.open(path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(content))
    return path / "a.tar.gz"


def zip_by_bzip2(path: Path) -> Path:
    with zipfile.ZipFile(path / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a/1.png", bytes(2**24))
    return path / "a.zip"


def large_png(side: int, mode: str = "L") -> bytes:
    content = io.BytesIO()
    Image.new(mode, (side, side)).save(content, "png")
    return content.getvalue()


def icon_of_many_pixels(path: Path) -> Path:
    """Declares 16 x 16 pixels and holds 9,000 x 9,000."""
    inner = large_png(9_000, "RGB")
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inner), 22)
    (path / "a.ico").write_bytes(struct.pack("<HHH", 0, 1, 1) + entry + inner)
    return path


def icon_whose_size_comes_late(path: Path) -> Path:
    """Where the size of the picture should be are two small numbers."""
    inner = large_png(9_000, "RGB")
    chunk = b"teSt" + struct.pack(">II", 16, 16)
    chunk = struct.pack(">I", 8) + chunk + struct.pack(">I", zlib.crc32(chunk))
    inner = inner[:8] + chunk + inner[8:]
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inner), 22)
    (path / "a.ico").write_bytes(struct.pack("<HHH", 0, 1, 1) + entry + inner)
    return path


def image_larger_than_memory(path: Path) -> Path:
    (path / "a.png").write_bytes(large_png(9000))
    return path


def tiff_that_unpacks_to_more(path: Path) -> Path:
    """A strip of colours of 16 bits holds 240 MB where some kilobytes are declared."""
    import tifffile

    file = path / "a.tif"
    pixels = np.zeros((64, 64, 3), np.uint16)
    tifffile.imwrite(file, pixels, compression="zlib", photometric="rgb")
    with tifffile.TiffFile(file, mode="r+") as opened:
        page = opened.pages.first
        bomb = zlib.compress(bytes(LARGE), 9)
        opened.filehandle.seek(0, 2)
        place = opened.filehandle.tell()
        opened.filehandle.write(bomb)
        page.tags["StripOffsets"].overwrite(place)
        page.tags["StripByteCounts"].overwrite(len(bomb))
    return path


def tiff_of_runs(path: Path) -> Path:
    """The same by PackBits, 100 MB, which tifffile unpacks into a list of integers."""
    import tifffile

    file = path / "a.tif"
    pixels = np.zeros((64, 64, 3), np.uint16)
    tifffile.imwrite(file, pixels, photometric="rgb", rowsperstrip=64)
    with tifffile.TiffFile(file, mode="r+") as opened:
        page = opened.pages.first
        bomb = b"\x81\0" * 800_000
        opened.filehandle.seek(0, 2)
        place = opened.filehandle.tell()
        opened.filehandle.write(bomb)
        page.tags["Compression"].overwrite(32773)
        page.tags["StripOffsets"].overwrite(place)
        page.tags["StripByteCounts"].overwrite(len(bomb))
    return path


def tiff_of_a_large_tile(path: Path) -> Path:
    """8 x 8 pixels in a tile of 6,304 x 6,304, 240 MB."""
    import tifffile

    file = path / "a.tif"
    pixels = np.zeros((8, 8, 3), np.uint16)
    tifffile.imwrite(file, pixels, photometric="rgb", tile=(16, 16), compression="zlib")
    with tifffile.TiffFile(file, mode="r+") as opened:
        page = opened.pages.first
        tile = zlib.compress(bytes(6_304 * 6_304 * 3 * 2), 9)
        opened.filehandle.seek(0, 2)
        place = opened.filehandle.tell()
        opened.filehandle.write(tile)
        for name in ("TileWidth", "TileLength"):
            page.tags[name].overwrite(6_304)
        page.tags["TileOffsets"].overwrite(place)
        page.tags["TileByteCounts"].overwrite(len(tile))
    return path


def tiff_in_a_tile_larger_than_it(path: Path) -> Path:
    """16 x 16 pixels in a tile of 16,000 x 16,000."""
    import tifffile

    content, side = io.BytesIO(), 16_000
    tifffile.imwrite(
        content, np.zeros((side, side), np.uint8), tile=(side, side), compression="zlib"
    )
    file = bytearray(content.getvalue())
    tags = int.from_bytes(file[4:8], "little")
    for place in range(
        tags + 2, tags + 2 + 12 * int.from_bytes(file[tags : tags + 2], "little"), 12
    ):
        if int.from_bytes(file[place : place + 2], "little") in (256, 257):  # width and height
            file[place + 8 : place + 10] = struct.pack("<H", 16)
    (path / "a.tif").write_bytes(file)
    return path


def tiff_by_another_compressor(path: Path) -> Path:
    """JPEG 2000 has a size of its own in it."""
    import tifffile

    file = path / "a.tif"
    tifffile.imwrite(file, np.zeros((8, 8, 3), np.uint16), photometric="rgb")
    with tifffile.TiffFile(file, mode="r+") as opened:
        opened.pages.first.tags["Compression"].overwrite(34712)
    return path


def tiff_of_many_channels(path: Path) -> Path:
    """64 channels of 8 bytes, none of which are there."""
    import tifffile

    file = path / "a.tif"
    tifffile.imwrite(file, np.zeros((8, 8, 60)), photometric="minisblack", planarconfig="contig")
    with tifffile.TiffFile(file, mode="r+") as opened:
        page = opened.pages.first
        for name in ("ImageLength", "RowsPerStrip", "ImageWidth"):
            page.tags[name].overwrite(9000)
    return path


def run_with_a_large_label(path: Path) -> Path:
    run = write_run(path / "run")
    write_predictions(run, [0, 2**40], [0, 1])
    return run


def run_with_large_embeddings(path: Path) -> Path:
    run = write_run(path / "run")
    (run / "embedding").mkdir()
    points, features = 1000, 10_000
    for step in range(12):
        write_npz(
            run / "embedding" / f"{step:08d}.npz", zipfile.ZIP_DEFLATED,
            z=zeros_npy("f4", points, features), y=zeros_npy("i8", points),
            predicted=zeros_npy("i8", points), index=zeros_npy("i8", points),
            labeled=zeros_npy("?", points),
        )  # fmt: skip
    return run


def run_with_many_points(path: Path) -> Path:
    run = write_run(path / "run")
    (run / "embedding").mkdir()
    points = 2_000_000
    write_npz(
        run / "embedding" / "00000001.npz", zipfile.ZIP_DEFLATED,
        z=zeros_npy("f2", points, 3), y=zeros_npy("i1", points), predicted=zeros_npy("i1", points),
        index=zeros_npy("i1", points), labeled=zeros_npy("?", points),
    )  # fmt: skip
    return run


def run_with_a_large_shape(path: Path) -> Path:
    from cclp.runs.start import train
    from tests.runs import tiny_config

    run = path / "run"
    train(tiny_config(max_steps=2), run)
    about = json.loads((run / "config.json").read_text())
    about["data"]["shape"] = [300_000]
    (run / "config.json").write_text(json.dumps(about))
    return run


CASES: dict[str, list[Callable[[Path], Path]]] = {
    "npz": [npz_by_bzip2, npz_by_lzma, npz_by_deflate, npz_that_lies, npz_with_a_long_header],
    "data": [npz_of_bools, npz_of_many_samples, tar_with_a_long_name,
             tar_with_gaps],
    "mat": [mat_of_bytes_as_doubles, mat_of_many_elements, mat_of_many_dimensions],
    "gz": [gzip_of_zeros],
    "table": [csv_of_short_lines, csv_of_commas, csv_of_one_long_line, csv_that_becomes_wide,
              parquet_of_many_rows, parquet_whose_footer_lies, parquet_of_wide_values,
              parquet_of_a_long_list,
              parquet_of_shared_beginnings, parquet_with_a_large_footer, xlsx_of_blanks,
              xlsx_of_a_long_row, xlsx_of_styles],
    "images": [icon_of_many_pixels, icon_whose_size_comes_late, image_larger_than_memory,
               tiff_that_unpacks_to_more,
               tiff_of_many_channels, tiff_of_runs, tiff_of_a_large_tile,
               tiff_by_another_compressor, tiff_in_a_tile_larger_than_it],
    "report": [run_with_a_large_label, run_with_large_embeddings, run_with_many_points],
    "run": [run_with_a_large_shape],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "make"), [(reader, make) for reader, all_ in CASES.items() for make in all_]
)
def test_small_files_are_refused_before_they_fill_the_memory(
    tmp_path: Path, measure: Measure, reader: str, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    files = [path, *path.rglob("*")]
    assert sum(file.stat().st_size for file in files if file.is_file()) < 6 * 2**20
    found = measure(reader, path)
    print(reader, make.__name__, found)
    assert found.error in ("ValueError", "NoRoom"), found
    assert len(found.message.splitlines()) == 1
    assert len(found.message.split()) >= 3
    assert found.peak < MOST


def test_elements_that_are_ignored_take_nothing(tmp_path: Path, measure: Measure) -> None:
    found = measure("mat", mat_of_nothing_often(tmp_path))
    assert found.error is None
    assert found.peak < MOST


def test_texts_of_a_table_count_in_every_row(tmp_path: Path, measure: Measure) -> None:
    """Parquet stores one text once, for all rows: nine gigabytes."""
    found = measure("table", parquet_of_one_long_text(tmp_path))
    assert "unpacks to more than" in found.message


def test_a_run_of_many_classes_is_shown(tmp_path: Path, measure: Measure) -> None:
    """Thousands of classes are honest; nothing grows by their square."""
    names = [f"class {number}" for number in range(6000)]
    run = write_run(tmp_path / "run", classes=names)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6000, 20_000)
    write_predictions(run, y.tolist(), np.where(rng.random(len(y)) < 0.96, y, 0).tolist())
    write_embedding(run, 600)
    found = measure("report", run)
    assert found.error is None, found
    assert found.peak < 100 * 2**20


def test_images_are_decoded_under_one_budget(tmp_path: Path, measure: Measure) -> None:
    """Each takes 60 MB: eight at a time would not fit."""
    content = large_png(1600, "RGBA")
    for number in range(8):
        (tmp_path / f"{number}.png").write_bytes(content)
    found = measure("images", tmp_path)
    assert found.error is None, found
    assert found.peak < MOST


def test_members_of_archives_by_other_compressors(tmp_path: Path, measure: Measure) -> None:
    found = measure("data", zip_by_bzip2(tmp_path))
    assert "'a/1.png' in it is compressed by bzip2" in found.message


def test_a_shared_budget_makes_threads_wait() -> None:
    shared, inside, most = SharedBudget(100), 0, 0
    lock = threading.Lock()

    def work(_: int) -> None:
        nonlocal inside, most
        with shared.taken(40):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(20)))
    assert (inside, most) == (0, 2)
    with (
        pytest.raises(NoRoom, match="takes 101 bytes of memory, expected at most 100"),
        shared.taken(101),
    ):
        pass


def test_limits_of_the_process_are_seen() -> None:
    code = (
        "import resource; from cclp.data.budget import most_bytes; free = most_bytes(); "
        "size = 4096 * int(open('/proc/self/statm').read().split()[0]); "
        "resource.setrlimit(resource.RLIMIT_AS, (size + 10**8, size + 10**8)); "
        "assert 5 * 10**7 < most_bytes() < 10**8 < free"
    )
    children.run([sys.executable, "-c", code], check=True, env=children.environment())


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**24 < most_bytes() < 2**50
    check_room(2**24)
    with pytest.raises(NoRoom, match=r"^a table takes 4,503,599,627,370,496 bytes of memory, of"):
        check_room(2**52, "a table")
    monkeypatch.setattr("cclp.data.budget.SMALL", 100)
    small, large = Budget(0), Budget(2**20)
    small.take(60)
    with pytest.raises(ValueError, match=r"^X unpacks to more than 100 bytes"):
        small.take(41, "X")
    large.take(100 * 2**20)
    with pytest.raises(ValueError, match="unpacks to more than 104,857,600 bytes"):
        large.take(1)


def test_json_of_a_run_needs_room_for_what_it_becomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two megabytes of empty lists are 45 in memory."""
    (tmp_path / "config.json").write_text(f'{{"more": [{",".join(["[]"] * 700_000)}]}}')
    monkeypatch.setattr(budget, "most_bytes", lambda: 50_000_000)
    tracemalloc.start()
    with pytest.raises(NoRoom, match=r"config\.json takes 84,0.* bytes of memory"):
        read_json(tmp_path, "config.json")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    monkeypatch.setattr(budget, "most_bytes", lambda: 90_000_000)
    tracemalloc.reset_peak()
    content = read_json(tmp_path, "config.json")
    assert tracemalloc.get_traced_memory()[1] < 84_000_000
    tracemalloc.stop()
    assert len(content["more"]) == 700_000
