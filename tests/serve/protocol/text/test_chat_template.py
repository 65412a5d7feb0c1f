"""Chat templates: what they may use, and what a hostile one cannot do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rows import rows

from ox.errors import LoadError, ServeError

pytest.importorskip("jinja2", reason="the extra text is not installed")

from ox.serve.protocol.text.chat_template import ChatTemplate

HI = [{"role": "user", "content": " Hi <b>é</b> "}]


def render(source: str, messages: list[dict[str, str]] = HI, tools: list[object] | None = None) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}, "here").render(messages, tools)


@rows(
    ("source", "text"),
    [
        ("{{ bos_token }}{% for m in messages %}[{{ m.role | upper }}]{{ m['content'] | trim }}{% endfor %}",
         "<s>[USER]Hi <b>é</b>"),
        ("{{ messages[0].content.strip().split(' ')[0] ~ (1 + 2) }}", "Hi3"),
        ("{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "10"),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') * 2 }}", "<a><a>"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}x{% endfor %}", ""),
        ("{{ tools | tojson }}", "null"),
        ("{{ {'é': '<'} | tojson(indent=1) }}", '{\n "é": "<"\n}'),
        ("{{ messages | map(attribute='role') | join(', ') }}{{ 'a-b' | replace('-', '+') }}", "usera+b"),
        ("{% generation %}a{% endgeneration %}{{ 'x' if add_generation_prompt }}", "ax"),
        ("{{ 'a\\nb' | indent(2) }}{{ 2 ** 3 }}{{ 7 % 4 }}", "a\n  b83"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ strftime_now('%%') }}{{ missing }}", "%"),
        ("{% set t %}a{{ 1 }}{% endset %}{{ t }}{{ 'A'.lower() in 'abc' }}", "a1True"),
    ],
)  # fmt: skip
def test_what_templates_use(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "line", "got"),
    [("{% for x in y %}\n{{ x }", 2, "unexpected"), ("a\n\n{{ x | nofilter }}", 3, "nofilter"), ("{% if %}", 1, ""),
     ("{% for x in y %}", 1, "")],
)  # fmt: skip
def test_a_broken_template_names_its_line(source: str, line: int, got: str) -> None:
    with pytest.raises(LoadError, match="the chat template is wrong") as caught:
        ChatTemplate(source, {}, "folder/chat_template.jinja")
    assert caught.value.where == f"folder/chat_template.jinja, line {line} of the template"
    assert got in str(caught.value.got)


HOSTILE = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10 ** 10 }}", "{{ [0] * 10 ** 10 }}", "{{ 9 ** 9 ** 9 ** 9 }}", "{{ 2 ** 1000 * 2 ** 1000 }}",
    "{{ 'aaaa'.replace('', 'b' * 10000) * 9999 }}", "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
    "{{ ('a' * 9999).join('b' * 9999) }}", "{{ range(9999) | join('a' * 9999) }}",
    "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set s = 'a' * 100 %}" + "{% set s = s ~ s %}" * 40 + "{{ s }}",
    "{% for x in range(90000) %}" + "x" * 100_000 + "{% endfor %}",
    "{% set t %}{% for x in range(90000) %}{{ 'x' * 9999 }}{% endfor %}{% endset %}{{ t }}",
    "{{ '%1000000000d' % 3 }}", "{{ strftime_now('%1000000000d') }}", "{{ ('a\\n' * 99999) | indent(1000) }}",
    "{% set ns = namespace(a=['x']) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a='x') %}{% for i in range(40) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}"
    "{{ ns.a == ns.a }}",
    "{% set ns = namespace(a=1) %}{% for i in range(40) %}{% set ns.a = {1: ns.a, 2: ns.a} %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=1) %}{% for i in range(40) %}{% set ns.a = dict(a=ns.a, b=ns.a) %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=[1]) %}{% for i in range(40) %}{% set ns.a = [ns.a] * 2 %}{% endfor %}{{ ns.a | tojson }}",
    "{% set ns = namespace(a={'b': 1}) %}{% for i in range(40) %}{% set ns.a = {1: ns.a, 2: ns.a.values()} %}"
    "{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=1) %}{% for i in range(40) %}{% set ns.a = namespace(b=ns.a, c=ns.a) %}"
    "{% endfor %}{{ ns }}",
    "{% set ns = namespace(a=1) %}{{ [ns, ns] }}", "{% set ns = namespace({'a': namespace()}) %}",
    "{{ ''.__class__.__mro__ }}", "{{ '{0.__class__}'.format(1) }}", "{{ messages.append(1) }}",
    "{{ messages[0].update({}) }}", "{{ ''.format_map({}) }}", "{{ 'a'.center(10 ** 9) }}",
    "{{ raise_exception.__globals__['json'] }}", "{{ (messages | attr('__class__')).x }}",
]  # fmt: skip


@rows("source", HOSTILE)
def test_a_hostile_template_is_not_loaded(source: str) -> None:
    with pytest.raises(LoadError):
        template = ChatTemplate(source, {}, "here")
        text = template.render(HI)
        if not text.strip():
            raise LoadError("it shows nothing")


def test_what_a_template_cannot_reach() -> None:
    for source in (
        "{% include 'a' %}",
        "{% import 'a' as b %}",
        "{{ lipsum(9) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ):
        with pytest.raises(ServeError, match="the model's chat template fails on these messages"):
            render(source)
    # neither by another meaning of what counts the passes
    with pytest.raises(LoadError, match="steps"):
        render("{% set count_pass = 1 %}{% for a in range(99999) %}{% for b in range(9) %}{% endfor %}{% endfor %}")


def test_a_template_that_refuses() -> None:
    template = ChatTemplate(
        "{% if messages[0].role != 'system' %}\n{{ raise_exception('no ' ~ 'system') }}{% endif %}", {}, ""
    )
    with pytest.raises(ServeError, match="refuses the messages") as caught:
        template.render(HI)
    assert caught.value.got == "no system" and caught.value.status == 400
    with pytest.raises(ServeError, match="fails on these messages") as caught:
        ChatTemplate("a\n{{ messages[0].nothing.more }}", {}, "").render(HI)
    assert caught.value.where == "line 2 of the template"


def test_where_templates_are(tmp_path: Path) -> None:
    assert ChatTemplate.read(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "{{ bos_token }}a", "bos_token": {"content": "<s>"}}))
    template = ChatTemplate.read(tmp_path)
    assert template is not None and template.render(HI) == "<s>a"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    config.write_text(json.dumps({"chat_template": named}))
    template = ChatTemplate.read(tmp_path)
    assert template is not None and template.render(HI) == "d"
    (tmp_path / "chat_template.jinja").write_text("file")
    template = ChatTemplate.read(tmp_path)
    assert template is not None and template.render(HI) == "file"
    (tmp_path / "chat_template.jinja").unlink()
    for text, words in (
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"chat_template": 5}', "not a text"),
        ("\\xff", "not JSON"),
    ):
        config.write_text(text)
        with pytest.raises(LoadError, match=words):
            ChatTemplate.read(tmp_path)


def test_a_model_with_a_broken_template_is_not_loaded(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    from tiny_decoder import write_decoder

    from ox.serve import Server

    folder = write_decoder(tmp_path, template="a\n{{ x")
    with pytest.raises(LoadError, match="the chat template is wrong") as caught:
        Server([folder])
    assert "line 2 of the template" in str(caught.value)
