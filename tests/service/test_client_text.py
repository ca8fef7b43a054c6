import pytest

from service.client_text import kind_text, name_text, shape_text, value_text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x", "'x'"),
        ("größe", "'größe'"),
        ("a\r\nb", r"'a\r\nb'"),
        ("n" * 100, "'" + "n" * 100 + "'"),
        ("n" * 101, "'" + "n" * 100 + "...'"),
    ],
)
def test_name_text_is_bounded_and_free_of_control_characters(name: str, shown: str) -> None:
    assert name_text(name) == shown


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ([], "[]"),
        ([-1, 3], "[-1,3]"),
        ([1, "two", None, [3], 1.5, True], "[1,a string,null,an array,1.5,true/false]"),
        ([7] * 17, "[" + "7," * 16 + "...]"),
    ],
)
def test_shape_text_shows_any_json(shape: list[object], shown: str) -> None:
    assert shape_text(shape) == shown


def test_value_and_kind_use_json_words() -> None:
    assert [value_text(value) for value in (1, 2.5, True, {}, None)] == ["1", "2.5", "true/false", "an object", "null"]
    assert kind_text(str) == "a string"
