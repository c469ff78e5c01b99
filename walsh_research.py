#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
"""walsh_research: fetch the web politely, and prove it.

The conformant bot of the Walsh-Research Bot Compliance Specification v1.3 in one file: standard library only, CPython 3.9 to 3.14.

    import walsh_research
    result = walsh_research.fetch("https://example.org/")       # blocklist, address, robots.txt, pace, then one request
    result.outcome, result.reason, result.links                 # never an exception for policy, network or server trouble
    walsh_research.may_fetch("https://example.org/private")     # a Decision: true or false, which gate, which rule, which line
    for result in walsh_research.run(urls): ...                 # many hosts, each at its own pace, strictly serial

    python walsh_research.py URL...                 python walsh_research.py --selftest --offline

Where each requirement lives, and the prefix of its tests:

    R1  User-Agent, one door      12 EXCHANGE, Bot._exchange              test_R1_
    R2  robots.txt, a b c d       5 ROBOTS, 9 FRESHNESS, Bot._robots_gate test_R2_ test_R2a_ test_R2b_ test_R2c_ test_R2d_
    R3  blocklist, a b c          7 BLOCKLIST, Bot._blocklist_gate        test_R3_ test_R3a_ test_R3b_ test_R3c_
    R4  serial, spacing           8 PACING, Bot._throttle_gate            test_R4_
    R5  back-off, Retry-After     3 TIME, 8 PACING, Bot._retries          test_R5_
    R6  scope                     10 READINGS, 12 EXCHANGE, 14 TRANSPORT  test_R6_
    R7  conditional, canonical    4 ADDRESSES, 9 FRESHNESS, Bot.run       test_R7_
    R8  frequency                 Bot._target                             test_R8_
    R9  structured formats        10 READINGS, Bot.discover               test_R9_
    R10 schema of the blocklist   6 SCHEMA, Bot._standalone_schema        test_R10_
    R11 persistent caches         13 SHELF                                test_R11_
    R12 stale blocks on refresh   9 FRESHNESS, Bot._errand                test_R12_
    R13 tags                      12 EXCHANGE, Bot._exchange              test_R13_
    7   the order of the gates    TARGET_GATES                            test_gates_
    12 to 16  vectors, fixtures, attestation, canaries                    16 PROOF

`grep -n '^# ===' walsh_research.py` is the contents page. A room uses only rooms above it; above the waterline nothing reads a clock, rolls dice,
opens a file or a socket, reads the environment or prints. What you may edit in a copy of your own: the numbers of
section 1b marked "ours", within the clause that each one serves. Those of 1a are the specification's.
"""
from __future__ import annotations

if __name__ == "__main__":      # Ctrl-C before `main` handles it, or after, ends the process without a traceback
    import _signal  # type: ignore[import-not-found]    # `signal` itself takes longer to import than a finger
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
import _thread
import collections
import errno
import heapq
import io
import itertools
import math
import operator
import os
import stat
import sys
import time
from bisect import bisect_right
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache, lru_cache
from itertools import islice

TYPE_CHECKING = False       # what stands under it is for type checkers; `typing` would cost each start three milliseconds
if TYPE_CHECKING:
    import re
    import ssl
    import threading
    from collections.abc import (
        Callable,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from datetime import datetime
    from typing import Any, AnyStr, ClassVar, Self, TypeVar, dataclass_transform

    @dataclass_transform(frozen_default=True)
    class NamedTuple(tuple[Any, ...]):
        _fields: ClassVar[tuple[str, ...]]
        def to_dict(self) -> dict[str, Any]: ...        # JSON-ready
        def _asdict(self) -> dict[str, Any]: ...
        def _replace(self, **changes: Any) -> Self: ...

    Record = TypeVar("Record", bound=NamedTuple)


# === 1. CONSTANTS   spec 6 ================================================
# 1a. The specification's own names and values.
USER_AGENT = "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"      # R1, exact
UA_TOKEN = "Walsh-Research"     # R1, R2: matched case-insensitively
ROBOTS_TTL_SECONDS = 86400      # R2: 24 h
BLOCKLIST_REFRESH = "PT6H"      # R3: where the document names no refresh of its own
SCHEMA_TTL_SECONDS = 604800     # R10: 7 days
MIN_REQUEST_INTERVAL = 1.0      # R4: seconds, per host
DEFAULT_MAX_RETRIES = 5         # R5
DEFAULT_BACKOFF_BASE = 1.0      # R5: seconds
BACKOFF_CAP = 60                # R5: seconds
STALE_HARD_CUTOFF = 2           # R12: times the TTL; unused, since a stale entry blocks on refresh
SPEC_VERSION = "walsh-research-compliance/v1.3"
BLOCKLIST_CONTRACT = "walsh-research-blocklist/v1"
ORIGIN = "https://wal.sh"       # publishes the canonical resources of spec 5
__version__ = "1.0.0"
__all__ = [
    "BACKOFF_CAP", "BLOCKLIST_REFRESH", "DEFAULT_BACKOFF_BASE", "DEFAULT_MAX_RETRIES", "MIN_REQUEST_INTERVAL", "ORIGIN",
    "ROBOTS_TTL_SECONDS", "SCHEMA_TTL_SECONDS", "SPEC_VERSION", "STALE_HARD_CUTOFF", "UA_TOKEN", "USER_AGENT", "Blocklist",
    "BlocklistRejected", "Bot", "Decision", "Feed", "FeedItem", "Link", "LlmsTxt", "PageMetadata", "Request", "Response", "Result",
    "Robots2", "RobotsTxt", "Rule", "Sandbox", "SchemaViolation", "Sitemap", "Source", "TransportError", "UnsupportedSchema", "Verdict",
    "attest", "backoff_delay", "canonical_url", "discover", "fetch", "host_key", "main", "markdown_links", "may_fetch", "page_metadata",
    "parse_duration", "parse_feed", "parse_llms_txt", "parse_retry_after", "parse_sitemap", "run", "tag_url", "validate",
]

# 1b. Our own numbers, each with its unit and its reason.
MAX_ROBOTS_BYTES = 500 * 1024           # spec 9.1.1, RFC 9309 2.5: what is read of a robots.txt
MAX_URL_LENGTH = 64 * 1024              # ours: characters; longer is refused
MAX_RETRY_AFTER_SECONDS = 10 * 365 * 86400  # ours: seconds; ten years say "never", and no arithmetic overflows
MAX_HOST_CHARACTERS = 1024              # ours: characters of a host before decoding; DNS allows 253 after it, and IDNA is quadratic
MAX_SHOWN_CHARACTERS = 300              # ours: characters of foreign text on one line of a terminal or a log
# robots.txt.
MAX_SITEMAPS = 1000                     # ours: Sitemap lines kept of one robots.txt; sites list a handful
MAX_SITEMAP_URL_LENGTH = 2048           # ours: characters; what sitemaps.org allows a location
MAX_WILDCARD_OCTETS = 2 ** 26           # ours: octets of a URL times its wildcard rules, a second at worst; beyond it a Disallow holds
# JSON, schemas, the blocklist.
MAX_JSON_DEPTH = 200                    # ours: levels; no document of the spec has ten, and C recursion ends near a thousand
MAX_JSON_DIGITS = 4300                  # ours: digits of one integer; CPython 3.11's own limit, since conversion is quadratic
MAX_PATTERN_STEPS = 50_000              # ours: work spent on proving a schema's pattern harmless
MAX_PATTERN_WORK = 2**20                # ours: steps of a pattern that backtracks by a power of the length; that bounds the length
MIN_BLOCKLIST_REFRESH_SECONDS = 300     # ours: five minutes; faster would hammer the origin
MAX_BLOCKLIST_REFRESH_SECONDS = 604800  # ours: seven days; slower would lose opt-outs
MAX_BLOCKLIST_KEY = 1024                # ours: characters; DNS ends at 253, so no opt-out is lost
MAX_BLOCKLIST_WARNINGS = 20             # ours: lines told about one document
MAX_SUBSCHEMAS = 2_000                  # ours: each is compiled to functions; a published schema has a few hundred
MAX_PATTERN_LENGTH = 500                # ours: characters of a schema's pattern
# Readings.
MAX_MARKDOWN_NESTING = 32               # ours: open quotes and list items; a deeper mark is text
MAX_DESTINATION_PARENTHESES = 3         # CommonMark asks for three
MAX_LINK_TEXT_TOKENS = 4096             # ours: marks that one link's text may span; bounds what an unclosed bracket keeps
MAX_TAG_CHARS = 2048                    # ours: one tag in Markdown; longer is text
MAX_HEAD_CHARS = 512 * 1024             # ours: of a page, where its <head> must have ended
MAX_HEAD_VALUE_CHARS = 4096             # ours: one title, description or URL of a page's head
MAX_HEAD_LISTED = 100                   # ours: feeds, or robots directives, of one page
MAX_XML_DEPTH = 256             # ours: open elements; a feed has six, and expat keeps some 100 bytes for each
MAX_XML_NAMES = 4096            # ours: different element and attribute names of one document; a feed has dozens
MAX_XML_TOKEN_BYTES = 256 * 1024        # ours: one tag or comment; expat holds it whole, its attributes many times over
XML_PIECE_BYTES = 64 * 1024     # ours: handed to expat at a time; the bounds are checked in between
MAX_BASE_LENGTH = 2048          # ours: characters; each relative link of a document repeats its base
MAX_JSON_FEED_BYTES = 1536 * 1024       # ours: JSON is parsed whole, and a hostile byte of it takes up to 45 of memory (tiny objects)
MAX_LISTED_ENTRIES = 50_000     # sitemaps.org: of one sitemap; a feed has hundreds
MAX_SITEMAP_BYTES = 50 * 2**20  # sitemaps.org: of one sitemap, uncompressed
MAX_SITEMAP_TAGS = 2_000_000    # ours: 50,000 entries of 20 elements each; 50 MiB of "<a/>" are 13 million
MAX_SITEMAP_TEXT = 12 * 2**20   # ours: characters of all URLs kept of one sitemap; 50,000 of 250
MAX_GZIP_MEMBERS = 1024         # ours: a block-wise gzip of 50 MiB has 800
MAX_DATE_LENGTH = 80            # ours: characters; no date of a feed is longer
MAX_FEED_TEXT = 4096            # ours: characters of one title, id or link; nothing that a person reads is longer
# robots2.txt.
ROBOTS2_AGENT = "Walsh-Research/1.2"            # ours: name/version as in USER_AGENT, for X-Agent-Identity and the ask protocol
ROBOTS2_CATEGORY = "ai-researcher"              # robots2: our agent category unless told otherwise
ROBOTS2_ASK_PATH = "/.well-known/robots2-ask"   # robots2, the ask protocol
ROBOTS2_ASK_TTL_SECONDS = 86400                 # robots2: an "allow" is cached for no more than 24 hours
ROBOTS2_MAX_CHAIN = 3                           # robots2: chained files beyond the site's own
ROBOTS2_MAX_UNKNOWN = 1000                      # ours: lines kept to be shown; a file of nothing else would cost 40 MB
# The shelf.
SHELF_FORMAT = "walsh-research-cache/1"     # ours: what an entry says of itself
MAX_REMEMBERED_ROBOTS_BYTES = 64 * 2**20    # ours: without a disk; a hostile domain has any number of hosts
MAX_ENTRY_BYTES = {"blocklist": 256 * 2**20, "": 2**20}     # ours: by kind; 10^6 domains are legitimate, 884 KiB of robots2.txt come next
MAX_PICKLE_OPCODES = 10_000             # ours: an entry is a small dict around a body; more could cost seconds (ints that collide) or memory
# ours: unused entries go away, by kind; the blocklist never does (R3b), a source outlives a yearly run
ENTRY_LIFETIME_SECONDS = {"blocklist": float("inf"), "source": 400 * 86400.0, "": 60 * 86400.0}
SWEEP_INTERVAL_SECONDS = 86400.0        # ours: a day between two whole passes over the cache folder
MAX_SWEEP_FILES = 4096                  # ours: looked at in one call between two passes; a few milliseconds
# The transport.
# ours: status lines and headers of one exchange, 1xx answers included; then what chunk framing may
# take beyond what the data pays for.
MAX_HEAD_BYTES = 256 * 1024
MAX_HEADER_LINES = 500          # ours: real answers have 30; 87,000 lines of "a:" fit the bytes above
DATA_BYTES_PER_CHUNK_LINE_BYTE = 32     # ours: a chunk of 128 bytes pays for its own line
MAX_LENGTH_DIGITS = 18          # ours: of a Content-Length; an exabyte, and `int` is quadratic
MAX_EXPANSION = 4               # ours: encoded bytes for a decoded one; deflate takes 5 to flush one
MAX_CONTENT_CODINGS = 3         # ours: stacked encodings; each keeps a decoder of 40 KiB
MAX_ADDRESSES_TRIED = 8         # ours: a name with 4,000 would make a port scanner of us
PIECE_BYTES = 16 * 1024         # ours: read, or decoded, at a time
PIN_SECONDS = 60.0              # ours: what a name resolved to is held for the requests that follow
MAX_PINS = 256                  # ours: names held so; a run may visit 10^6
LONGEST_DEADLINE_SECONDS = 86400.0  # ours: a longer or endless one overflows select() on some systems
# The bot and the desk.
MAX_REDIRECTS = 10                      # ours: the spec is silent (19, C6); browsers stop at 20
MAX_ROBOTS_REDIRECTS = 5                # RFC 9309 2.3.1.2
MAX_BLOCKLIST_BYTES = 128 * 2**20       # ours: a list of 10^6 domains is legitimate
MAX_SCHEMA_BYTES = 2**20                # ours
MAX_CHAINED_BYTES = 128 * 1024          # ours: of a robots2.txt that another chains to; four must fit an entry of the cache
MAX_READ_BYTES = 4 * 2**20              # ours: of a Markdown body, for its links
MAX_VALIDATOR_LENGTH = 1024             # ours: characters of an ETag or Last-Modified that is kept
MAX_ROBOTS_IN_MEMORY_BYTES = 8 * 2**20  # ours: the rest is on the shelf
MAX_SLEEP_SECONDS = 86400.0             # ours: time.sleep overflows for centuries
LEAST_SLEEP_SECONDS = 0.001             # ours: a shorter one may not move a coarse clock at all
MAX_PACERS = 32                         # ours: clocks of simulations that are remembered
MAX_WARNINGS = 1000                     # ours: lines about a run
PACE_MARGIN_SECONDS = 0.005             # ours: added to every interval, so that a server's own clock never logs less; a clock may ask for more
SLOT_TOLERANCE_SECONDS = 0.002          # ours: how late a request may leave without being written down again; a part of the margin
LOCK_POLL_SECONDS = 0.05                # ours: between two looks at a lock that another process holds
MAX_CLAIM_SECONDS = 86400.0             # ours: a start further in the future was written by a clock that jumped
MAX_HOLD_SECONDS = 30 * 86400.0         # ours: a "not before" further away is not believed
HOLD_AFTER_LAST_RETRY_SECONDS = 3600.0  # spec 7, the back-off diagram: "wait 1h"
POLICY_RETRY_SECONDS = 300.0            # ours: before a policy document that could not be had is asked for again
LEAST_FAILURES_FOR_GOOD = 3             # ours: attempts in vain, besides
MAX_UNREACHABLE_SECONDS = 30 * 86400.0  # RFC 9309 2.3.1.4
STATUS_TICK_SECONDS = 0.5               # ours: between two looks of the status line at the clock
PACE_TIMES = ("last_at", "policy_at", "departed_at", "not_before")
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
BACKOFF_STATUSES = (429, 503)           # R5
CANONICAL_KINDS = ("blocklist", "schema")
BLOCKLIST_PATH = "/.well-known/walsh-research/blocklist.json"           # spec 5
SCHEMA_PATH = "/.well-known/walsh-research/blocklist.schema.json"
FIXTURES_PATH = "/.well-known/walsh-research/test-fixtures.json"
CANARY_PATH = "/research/bots/dogfood-"                                 # spec 16
DEFAULT_FIXTURES = {                    # spec 13, where the index cannot be had
    "robots_allowed_sentinel": ORIGIN + CANARY_PATH + "allow", "robots_disallowed": ORIGIN + CANARY_PATH + "disallow",
    "walsh_only_allowed": ORIGIN + CANARY_PATH + "walsh-only", "external_positive": "https://pypi.org/project/jsonschema/",
    "operator_blocked_host": "example.com"}
TOOL_NAME = "walsh_research"
PLATFORM_CACHE = "<the platform's>"     # cache folder, which None is not


class Lazy:
    """A stand-in for what takes long to make, and is made when something of it is first asked for."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __getattr__(self, name: str) -> Any:        # only for what is not there yet
        value = getattr(self.make(), name)
        setattr(self, name, value)
        return value


def lazy_re(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """re.compile, put off: a run needs few expressions, and compiling them all takes longer than a run."""
    pattern: Any = Lazy(lambda: re.compile(source, flags))
    return pattern  # type: ignore[no-any-return]


def regular_expressions() -> Any:
    """The module, from then on in place of its stand-in; it takes as long to import as half of this file."""
    global re
    import re
    return re


if not TYPE_CHECKING:
    re = Lazy(regular_expressions)


# === 2. NOUNS =============================================================
# The value tuples that come back, and the exceptions.

def as_json(value: Any) -> Any:
    """Plain data for a value tuple or what it holds."""
    if hasattr(value, "_fields"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value.value if isinstance(value, Enum) else value


if not TYPE_CHECKING:
    class RecordType(type):
        """typing.NamedTuple, less its compiling of every annotation: that was a fifth of the time to import this file."""

        def __new__(cls, name, bases, body):
            fields = body["__annotations__"]
            defaults = [body.pop(field) for field in fields if field in body]
            return type(name, (collections.namedtuple(name, fields, defaults=defaults),), {"__slots__": (), "to_dict": as_json, **body})

    NamedTuple = type.__new__(RecordType, "NamedTuple", (), {})


RECOMMENDATIONS = {     # the rows of the WebCanon policy model
    "allowed_explicit": "recommended",
    "allowed_implicit": "recommended",
    "disallowed_explicit": "not_recommended",
    "unknown_unreachable": "unknown_do_not_fetch_by_default",
    "unknown_parse_error": "allowed_but_warn",
    "skipped_by_user_policy": "recommended",
}


class Verdict(str, Enum):
    """What robots.txt says of a URL, in the words of the WebCanon policy model.

    >>> Verdict.UNKNOWN_PARSE_ERROR.recommendation
    'allowed_but_warn'
    """

    ALLOWED_EXPLICIT = "allowed_explicit"
    ALLOWED_IMPLICIT = "allowed_implicit"
    DISALLOWED_EXPLICIT = "disallowed_explicit"
    UNKNOWN_UNREACHABLE = "unknown_unreachable"
    UNKNOWN_PARSE_ERROR = "unknown_parse_error"
    SKIPPED_BY_USER_POLICY = "skipped_by_user_policy"

    __str__ = str.__str__       # 3.12 changed what an f-string makes of a str enum

    @property
    def recommendation(self) -> str:
        return RECOMMENDATIONS[self.value]


class Rule(NamedTuple):
    """One Allow or Disallow line of the selected group."""

    allow: bool
    value: str                  # as the file writes it
    line: int                   # 1-based


class Link(NamedTuple):
    """A link: `title` is plain text, `url` absolute."""

    title: str
    url: str


class FeedItem(NamedTuple):
    """An item of a feed: metadata only. `published` is ISO 8601 with zone, or None."""

    title: str
    url: str
    id: str
    published: str | None    # ISO 8601 with zone, or None


class Feed(NamedTuple):
    """A feed: `kind` is "rss", "atom" or "json"; `warning` says where the document broke, if it did."""

    kind: str                   # "rss", "atom" or "json"
    title: str
    url: str                    # the site the feed speaks for (absolute), or ""
    items: list[FeedItem]
    warning: str = ""           # where the document broke, if it did


class SitemapEntry(NamedTuple):
    """An entry of a sitemap; `lastmod` as the sitemap writes it, or None."""

    url: str
    lastmod: str | None      # as the sitemap writes it


class Sitemap(NamedTuple):
    """A sitemap: `kind` is "urlset", "index" or "text"."""

    kind: str                   # "urlset", "index" or "text"
    entries: list[SitemapEntry]
    warning: str = ""


class LlmsLink(NamedTuple):
    """A link of an llms.txt, with its section ("" outside of all) and its note."""

    section: str
    title: str
    url: str
    note: str


class LlmsTxt(NamedTuple):
    """An llms.txt: `links` is [LlmsLink(section, title, url, note)]. A hint, never policy."""

    title: str
    summary: str
    links: list[LlmsLink]


class PageMetadata(NamedTuple):
    """What a page's <head> says: `robots` are lower-case directives, `feeds` the alternates that it advertises."""

    title: str = ""
    description: str = ""
    canonical: str = ""
    language: str = ""
    robots: tuple[str, ...] = ()        # directives of <meta name=robots> and <meta name=walsh-research>, lower-case
    feeds: tuple[Link, ...] = ()        # rel=alternate feeds that the head advertises


class Robots2Line(NamedTuple):
    """A line of a robots2.txt that is shown and grants nothing: an unknown directive, value or block, or a `chain` that is not last."""

    line: int                   # 1-based
    name: str                   # lower-case
    value: str


class Robots2Ruling(NamedTuple):
    """What the robots2 gate says of a target: "ask" names in `ask` what the site wants to be asked for first."""

    decision: str               # "allowed", "denied" or "ask"
    reason: str = ""
    ask: tuple[str, ...] = ()
    rule: Rule | None = None     # where a path rule denied


class AskAnswer(NamedTuple):
    """What a site answered when asked (robots2, the ask protocol)."""

    decision: str               # "allow", "allow-once", "deny" or "later"
    scopes: tuple[str, ...] = ()    # none: the whole site
    reason: str = ""
    cacheable: bool = False     # an allow, or a no that the site itself said; never an allow-once, never mere trouble


class Request(NamedTuple):
    """What the door is handed: one exchange, never a redirect or a retry of its own."""

    method: str                 # "GET" or "HEAD"
    url: str                    # wire form: ASCII, no fragment, no credentials
    headers: dict[str, str]
    timeout: float              # seconds for the whole exchange
    max_bytes: int              # decoded; what lies beyond is cut off, and Response.truncated says so
    wants: Callable[[int, list[tuple[str, str]]], bool] | None = None   # asked (status, headers) before the body; False leaves it unread
    departed: Callable[[], None] | None = None   # called once when the last byte of the request has left (R4 counts from there)


class Response(NamedTuple):
    status: int
    headers: list[tuple[str, str]]      # (lower-case name, value), in order
    body: bytes                         # content-decoded
    truncated: bool = False


class TransportError(Exception):
    """No HTTP answer. `reason` is one line; `final` is true where a retry is pointless; `refused` where the address check refused."""

    def __init__(self, reason: str, final: bool = False, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.final, self.refused = reason, final, refused


class SchemaViolation(ValueError):
    """The instance does not hold: `pointer` is its JSON Pointer, `keyword` the assertion that failed."""

    def __init__(self, pointer: str, keyword: str, detail: str) -> None:
        super().__init__(f"{pointer or '/'}: {keyword}: {detail}")
        self.pointer, self.keyword = pointer, keyword


class UnsupportedSchema(ValueError):
    """The schema asserts something that the validator does not implement."""


class BlocklistRejected(ValueError):
    """The document must not be adopted (R3c, R10)."""


# === 3. TIME   R5   spec 12.5, 12.6 ========================================
# Owns what a duration and a date mean. The expressions that a run may never need stay text, and `re` compiles them when they are first used.
UNIT_COUNT = r"([0-9]{1,15}(?:[.,][0-9]{1,15})?)"   # fifteen digits: exact as a float, finite times any unit
LAST_FRACTION = "(?!.*[.,][0-9]+[A-Za-z].)"     # no unit follows one that has a fraction
# Groups in the order of weeks, days, hours, minutes, seconds.
ISO_DURATION = (rf"{LAST_FRACTION}P(?=[0-9T])(?:{UNIT_COUNT}W|(?:{UNIT_COUNT}D)?"
                rf"(?:T(?=[0-9])(?:{UNIT_COUNT}H)?(?:{UNIT_COUNT}M)?(?:{UNIT_COUNT}S)?)?)")
SHORT_DURATION = (rf"{LAST_FRACTION}(?=[0-9])(?:{UNIT_COUNT}w)?(?:{UNIT_COUNT}d)?(?:{UNIT_COUNT}h)?(?:{UNIT_COUNT}m)?"
                  rf"(?:{UNIT_COUNT}s)?")
PLAIN_SECONDS = "()()()()" + UNIT_COUNT

WEEKDAY, CLOCK_TIME = "(?:mon|tue|wed|thu|fri|sat|sun)", "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
HTTP_DATE_FORMS = (         # RFC 9110 5.6.7
    rf"{WEEKDAY}, (?P<day>[0-9]{{2}}) (?P<month>[a-z]{{3}}) (?P<year>[0-9]{{4}}) {CLOCK_TIME} GMT",                         # IMF-fixdate
    rf"{WEEKDAY}(?:s|nes|rs|ur)?day, (?P<day>[0-9]{{2}})-(?P<month>[a-z]{{3}})-(?P<year>[0-9]{{2}}) {CLOCK_TIME} GMT",      # RFC 850
    rf"{WEEKDAY} (?P<month>[a-z]{{3}}) (?P<day>[ 0-9][0-9]) {CLOCK_TIME} (?P<year>[0-9]{{4}})",                             # asctime
)
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799      # the years 1 and 9999, all that ISO 8601 writes in four digits


def utc_moment(unix_seconds: float) -> datetime:
    """The whole second in UTC, kept within the years 1 to 9999; NaN counts as the first second."""
    from datetime import datetime, timedelta  # a decision needs no calendar

    return datetime(1970, 1, 1) + timedelta(0, max(FIRST_SECOND, min(unix_seconds, LAST_SECOND)) // 1)


def iso_utc(unix_seconds: float) -> str:
    """The instant as ISO 8601 in UTC, whole seconds; "" for NaN. Never raises.

    >>> iso_utc(1779494400.9)
    '2026-05-23T00:00:00Z'
    """
    return "" if math.isnan(unix_seconds) else f"{utc_moment(unix_seconds).isoformat()}Z"


def duration_seconds(text: str, forms: Sequence[str], wanted: str) -> float:
    for form in forms:
        if found := re.fullmatch(form, text):
            return sum(float(number.replace(",", ".")) * unit for number, unit in zip(found.groups(), (604800, 86400, 3600, 60, 1)) if number)
    raise ValueError(f"duration is {text[:80]!r}, want {wanted}")


def parse_duration(text: str) -> float:
    """Seconds of an ISO 8601 duration, `PnW` or `PnDTnHnMnS`; only the last number may have a fraction (spec 9.2, 12.6).

    Calendar years and months have no length, so they are a ValueError, as is everything else.
    >>> parse_duration("PT1H30M")
    5400.0
    """
    return duration_seconds(text, [ISO_DURATION], "ISO 8601 such as PT6H, P1D or PT1H30M, without years and months")


def parse_wait(text: str) -> float:
    """Seconds of a duration as people type it: `90`, `1.5`, `30s`, `5m`, `1h30m`, `1d`, or ISO 8601. ValueError otherwise.

    >>> parse_wait("1h30m"), parse_wait("90"), parse_wait("PT5M")
    (5400.0, 90.0, 300.0)
    """
    return duration_seconds(text, [PLAIN_SECONDS, SHORT_DURATION, ISO_DURATION], "seconds (90), units (30s, 5m, 1h30m, 1d) or ISO 8601 (PT5M)")


def parse_http_date(value: str, now: float) -> float | None:
    """Unix seconds of an HTTP-date in any of its three forms, whatever weekday it names (the spec's own vectors misname it).

    `now` places a two-digit year: RFC 9110 5.6.7 puts what would be more than 50 years ahead into the past. Never raises.
    >>> parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT", now=1779494400)
    784111777.0
    """
    match = next(filter(None, (re.fullmatch(form, value, re.ASCII | re.IGNORECASE) for form in HTTP_DATE_FORMS)), None)
    if match is None or match["month"].lower() not in MONTH_NAMES:
        return None
    year, day, hour, minute, second = map(int, match.group("year", "day", "hour", "minute", "second"))
    month = MONTH_NAMES.index(match["month"].lower()) + 1
    if len(match["year"]) == 2:
        present = utc_moment(max(0.0, min(now, 1e11)))      # no clock is believed that says less than 1970, or more than 5138
        year += (present.year + 50) // 100 * 100
        if (year - 50, month, day, hour, minute, second) > present.timetuple():
            year -= 100
    epoch = utc_moment(0.0)
    try:
        return (epoch.replace(year, month, day, hour, minute) - epoch).total_seconds() + second if second <= 60 else None   # 60: a leap second
    except ValueError:
        return None


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds that Retry-After asks for from `now` (Unix seconds), 0.0 for a date that has passed; None where it is neither form.

    R5, RFC 9110 10.2.3. Never raises; a wait is cut at MAX_RETRY_AFTER_SECONDS.
    >>> parse_retry_after("120", now=0), parse_retry_after("soon", now=0)
    (120.0, None)
    """
    if not isinstance(value, str) or not value.isascii():       # int() would read Arabic digits
        return None
    value = value.strip(" \t")
    if value.isdigit():
        seconds = float(value)
    elif (instant := parse_http_date(value, now)) is None:
        return None
    else:
        seconds = instant - now
    return max(0.0, min(seconds, float(MAX_RETRY_AFTER_SECONDS)))


# === 4. ADDRESSES   R7   spec 10.2, 12.4 ===================================
# Owns what a URL, a host and an IP address are: three spellings of a URL (key, throttle, wire), and which addresses are public.
DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 3986 appendix B: scheme, authority, path, query and fragment of any reference, each with its mark; it matches every text.
REFERENCE = lazy_re(r"(?s)([A-Za-z][A-Za-z0-9+.-]*:)?(//[^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?")
HTTP_URL = lazy_re(         # scheme, userinfo, host, port, path, query, fragment
    r"(?ais)(https?)://(?:([^/?#\\]*)@)?((?:[^/?#@\]]*\])?[^/?#@:]*)(?::([0-9]{0,5}))?(/[^?#]*)?(\?[^#]*)?(#.*)?")
PLAIN_URL = lazy_re(        # most URLs: already in the wire form, with no port; the way past everything else in this room
    f"(?!.{{{MAX_URL_LENGTH + 1}}})" r"(https?://(?=[^/]{1,253}/)(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62})"
    r"((?:/(?!\.|%2[eE])[A-Za-z0-9._~!$&'()*+,;=:@%\[\]-]*)+)(\?[A-Za-z0-9._~!$&'()*+,;=:@%\[\]/?-]*)?")
PLAIN_HOST = lazy_re(r"(?=.{1,253}\Z)(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}")
ASCII_HOST = lazy_re(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
NEVER_IN_URL = lazy_re(r"[\x00-\x1f\x7f\ud800-\udfff]")
UNSAFE_IN_URL = lazy_re(r"[^!#-;=?-\[\]_a-z~]+")         # space " < > \ ^ ` { | } and all beyond ASCII; a stray % stays as it stands
# IDNA 2003 and 2008 lead the first five to different hosts; a label of 64 is none, and the codec is quadratic on it.
IDNA_DOUBT = "[\u00df\u1e9e\u03c2\u200c\u200d]|[^.\u3002\uff0e\uff61]{64}"
IPV4_NUMBERS = lazy_re(r"(?:(?:0x[0-9a-f]*|[0-9]+)(?:\.(?!\Z)|\Z)){1,4}")
ENDS_IN_NUMBER = r"(?:\A|\.)(?:0x[0-9a-f]*|[0-9]+)\Z"
USERINFO = (                # all before the last @ of the authority; where a "port" is no number, a password holds a / ? or #
    r"(?s)\A((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)?(?:[^/?#]*|[^/?#:\[]*:(?![0-9]*(?:[/?#]|\Z)).*)@")
INNER_USERINFO = r"//[^\s/?#]*@"         # a URL within a URL


class UrlParts(NamedTuple):
    scheme: str                 # "http" or "https"
    userinfo: str | None
    host: str                   # as normalize_host gives it
    port: int | None            # where the URL writes one
    path: str                   # "" or from its "/" on; from here on as written
    query: str                  # "" or from its "?" on
    fragment: str               # "" or from its "#" on


def printable(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """Foreign text as one line for a terminal or a log: nothing in it moves a cursor, hides or reorders; at most `limit` characters.

    >>> printable("a\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    shown = text[:limit + 1].replace("\xa0", " ")
    if not shown.isprintable():
        shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in shown)
    return shown if len(shown) <= limit else shown[:max(0, limit - 3)] + "..."


def mask_credentials(text_url: str) -> str:
    """A URL, a proxy setting or what was meant to be one, with its userinfo as `***`. Never raises.

    >>> mask_credentials("http://user:pa/ss@proxy:3128"), mask_credentials("https://x.test/@user")
    ('http://***@proxy:3128', 'https://x.test/@user')
    """
    return re.sub(INNER_USERINFO, "//***@", re.sub(USERINFO, r"\1***@", text_url, count=1))


def percent_encode(match: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in match[0].encode("utf-8", "replace"))


def ipv4_number(host: str) -> int | None:
    """The 32 bits that a host of numbers means to `inet_aton` and browsers: decimal, octal or hex, one to four parts; else None.

    >>> [f"{ipv4_number(host):x}" for host in ("127.0.0.1", "0x7f.1", "0177.0.0.1", "2130706433")]
    ['7f000001', '7f000001', '7f000001', '7f000001']
    """
    if not IPV4_NUMBERS.fullmatch(host):
        return None
    try:
        *octets, rest = (int(part[2:] or "0", 16) if part[:2] == "0x" else int(part, 8 if part[0] == "0" else 10) for part in host.split("."))
        return int.from_bytes(bytes(octets) + rest.to_bytes(4 - len(octets), "big"), "big")
    except (ValueError, OverflowError):     # 08, 256, or more digits than Python converts
        return None


def ipv6_number(text: str) -> int | None:
    """The 128 bits of an IPv6 address without brackets and scope; None where it is none."""
    from ipaddress import IPv6Address  # most runs meet none

    try:
        return None if "%" in text or len(text) > 45 else int(IPv6Address(text))
    except ValueError:
        return None


def ipv4_text(number: int) -> str:
    return ".".join(map(str, number.to_bytes(4, "big")))


def ipv6_text(number: int) -> str:
    """RFC 5952, always in hex: `ipaddress` began to write mapped addresses with dots in 3.13."""
    from ipaddress import IPv6Address

    return f"::ffff:{number >> 16 & 0xFFFF:x}:{number & 0xFFFF:x}" if number >> 32 == 0xFFFF else str(IPv6Address(number))


def normalize_host(host: str) -> str:
    """The one spelling of a host that every gate and the request see; ValueError where it is none.

    Lower case, A-labels, no final dot; a number is the IPv4 address that it means, so that no spelling of 127.0.0.1 slips by;
    IPv6 compressed, in brackets.
    >>> normalize_host("B\\xfccher.Example."), normalize_host("0x7f.1"), normalize_host("[0:0::1]")
    ('xn--bcher-kva.example', '127.0.0.1', '[::1]')
    """
    if PLAIN_HOST.fullmatch(host):
        return host
    wanted = f"host is {host[:80]!r}, want "
    if host.startswith("["):
        number = ipv6_number(host[1:-1]) if host.endswith("]") else None
        if number is None:
            raise ValueError(wanted + "an IPv6 address in brackets, without a scope")
        return f"[{ipv6_text(number)}]"
    name = host if len(host) <= MAX_HOST_CHARACTERS else ""
    if "%" in name:             # an escape would hide a listed host
        from urllib.parse import unquote  # hardly ever needed

        name = unquote(name)    # where it is no UTF-8, U+FFFD is no host character
    if not name.isascii():
        try:
            name = "" if re.search(IDNA_DOUBT, name) else name.encode("idna").decode("ascii")
        except UnicodeError:
            name = ""
        if not name:
            raise ValueError(wanted + "a name that all versions of IDNA encode alike, or its punycode (xn--...)")
    name = name.lower().removesuffix(".")
    if not ASCII_HOST.fullmatch(name):
        raise ValueError(wanted + "labels of letters, digits and hyphens, 63 characters each, 253 in all")
    if re.search(ENDS_IN_NUMBER, name):
        number = ipv4_number(name)
        if number is None:
            raise ValueError(wanted + "an IPv4 address, since it ends in a number")
        return ipv4_text(number)
    return name


def split_url(url: str) -> UrlParts:
    """The parts of an absolute http(s) URL; ValueError otherwise.

    Unlike `urllib.parse`, nothing is silently removed, and an empty query is not lost.
    >>> split_url("HTTP://Example.com:81?")
    UrlParts(scheme='http', userinfo=None, host='example.com', port=81, path='', query='?', fragment='')
    """
    if len(url) > MAX_URL_LENGTH:
        raise ValueError(f"URL has {len(url)} characters, want at most {MAX_URL_LENGTH}")
    stray = NEVER_IN_URL.search(url)
    if stray:
        raise ValueError(f"URL has {stray[0]!r} at character {stray.start() + 1}, want no control characters and no lone surrogates")
    match = HTTP_URL.fullmatch(url)
    if match is None or not 0 < int(match[4] or 80) < 65536:        # a "port" may be half a password
        raise ValueError(f"URL is {mask_credentials(url)[:80]!r}, want http(s)://host or http(s)://host:port")
    path, query, fragment = match.groups("")[4:]
    return UrlParts(match[1].lower(), match[2], normalize_host(match[3]), int(match[4]) if match[4] else None, path, query, fragment)


def canonical_url(url: str) -> str:
    """The de-duplication key of R7 (spec 10.2); never what is requested. ValueError as `split_url`.

    >>> canonical_url("HTTPS://x.test:443/a/?q=1#f")
    'https://x.test/a?q=1'
    """
    plain = PLAIN_URL.fullmatch(url)
    if plain:
        origin, path, query = plain.groups("")
        if path == "/" or not path.endswith("/"):
            return url      # the same string, not another: a run may hold 10^6 of them
    else:
        scheme, _, host, port, path, query, _ = split_url(url)
        origin = f"{scheme}://{host}" if port in (None, DEFAULT_PORTS[scheme]) else f"{scheme}://{host}:{port}"
    return f"{origin}{path.removesuffix('/') or '/'}{query}"        # a single slash goes: /a// is /a/


def host_key(url: str) -> str:
    """The throttle key of R4: the host, with `:port` where that is not the scheme's default. ValueError as `split_url`.

    >>> host_key("https://Example.com:443/"), host_key("http://example.com:8080/")
    ('example.com', 'example.com:8080')
    """
    return canonical_url(url).split("/", 3)[2]


def resolve_dot_segments(path: str) -> str:
    """RFC 3986 5.2.4; `%2e` is a dot, as it is to servers and browsers.

    >>> resolve_dot_segments("/a/./b/../%2e%2E/c/..")
    '/'
    """
    if "/." not in "/" + path and "%2" not in path:     # most have none
        return path
    kept: list[str] = []
    dots = ""
    for segment in path.split("/"):
        dots = segment.lower().replace("%2e", ".")
        if dots == "..":
            del kept[max(1, len(kept) - 1):]        # the root stays
        elif dots != ".":
            kept.append(segment)
    return "/".join(kept + [""] if dots in (".", "..") else kept)


def wire_url(url: str) -> str:
    """The one form of a target that gates and request see: ASCII, dot segments resolved, no fragment; nothing else is rewritten.

    ValueError as `split_url`, and for credentials. What it gives, it gives back unchanged.
    >>> wire_url("https://Example.com./a/%2e%2E/b c?q#f")
    'https://example.com/b%20c?q'
    """
    if PLAIN_URL.fullmatch(url):
        return url
    scheme, userinfo, host, port, path, query, _ = split_url(url)
    if userinfo is not None:
        raise ValueError("URL has credentials before its @, want none")
    target = UNSAFE_IN_URL.sub(percent_encode, resolve_dot_segments(path or "/") + query)
    wire = f"{scheme}://{host}{target}" if port is None else f"{scheme}://{host}:{port}{target}"
    if len(wire) > MAX_URL_LENGTH:
        raise ValueError(f"URL has {len(wire)} characters when encoded, want at most {MAX_URL_LENGTH}")
    return wire


def path_and_query(wire: str) -> str:
    """What robots.txt is asked about, and what the request line carries."""
    return wire[wire.index("/", 8):]


def site_of(wire: str) -> str:
    """scheme://host[:port]"""
    return wire[:wire.index("/", 8)]


def site_key(wire: str) -> str:
    """What a robots.txt is kept by (RFC 9309 2.3): scheme, host and port, the default port written out.

    >>> site_key("https://x.test/a")
    'https://x.test:443'
    """
    origin = site_of(wire)
    return origin if re.search(r":[0-9]+\Z", origin) else f"{origin}:{DEFAULT_PORTS[origin[:origin.index(':')]]}"


def resolve_url(base: str, reference: str) -> str:
    """The absolute URL that a link or a Location means (RFC 3986 5.2); of any scheme, so `wire_url` judges what comes back.

    ValueError where it has a control character, is relative to nothing, or outgrows MAX_URL_LENGTH.
    >>> resolve_url("https://x.test/a/b?c", "../d#e")
    'https://x.test/d#e'
    """
    scheme, authority, path, query, fragment = next(REFERENCE.finditer(reference)).groups("")
    if not scheme:
        scheme, base_authority, base_path, base_query, _ = next(REFERENCE.finditer(base)).groups("")
        if not scheme or not base_authority[2:]:
            raise ValueError(f"base is {mask_credentials(base)[:80]!r}, want an absolute URL to resolve against")
        if not authority:
            authority = base_authority
            if not path:
                path, query = base_path, query or base_query
            elif not path.startswith("/"):
                path = f"{base_path.rpartition('/')[0]}/{path}"
    if authority:       # else x:/.//host would grow one
        path = resolve_dot_segments(path)
    resolved = f"{scheme}{authority}{path}{query}{fragment}"
    if len(resolved) > MAX_URL_LENGTH or NEVER_IN_URL.search(resolved):
        raise ValueError(f"URL is {mask_credentials(resolved)[:80]!r}, want at most {MAX_URL_LENGTH} characters, and no controls")
    return resolved


# Which addresses are public: the IANA special-purpose registries. The first row that holds an address decides, and one without a reason is
# public, as is an IPv4 address that no row holds. Of "IPv4 inside", 6to4 and Teredo the addresses inside decide.
ADDRESS_BLOCKS = """
    0.0.0.0/8           an address of this network
    10.0.0.0/8          a private address
    100.64.0.0/10       a carrier-grade NAT address
    127.0.0.0/8         a loopback address
    168.63.129.16/32    a cloud metadata address
    169.254.169.254/32  a cloud metadata address
    169.254.0.0/16      a link-local address
    172.16.0.0/12       a private address
    192.0.0.0/24        an IETF protocol address
    192.0.2.0/24        a documentation address
    192.88.99.0/24      a 6to4 relay address
    192.168.0.0/16      a private address
    198.18.0.0/15       a benchmarking address
    198.51.100.0/24     a documentation address
    203.0.113.0/24      a documentation address
    224.0.0.0/4         a multicast address
    255.255.255.255/32  the broadcast address
    240.0.0.0/4         a reserved address
    ::/128              the unspecified address
    ::1/128             a loopback address
    ::/96               IPv4 inside
    ::ffff:0:0/96       IPv4 inside
    64:ff9b::/96        IPv4 inside
    64:ff9b:1::/96      IPv4 inside
    64:ff9b:1::/48      a local NAT64 address
    2002::/16           6to4
    2001::/32           Teredo
    fd00:ec2::254/128   a cloud metadata address
    fc00::/7            a unique local address
    fe80::/10           a link-local address
    fec0::/10           a site-local address
    ff00::/8            a multicast address
    100::/64            a discard-only address
    5f00::/16           a segment routing address
    2001:1::1/128
    2001:1::2/128
    2001:1::3/128
    2001:3::/32
    2001:4:112::/48
    2001:2::/48         a benchmarking address
    2001:10::/28        an ORCHID
    2001:20::/28        an ORCHID
    2001:db8::/32       a documentation address
    3fff::/20           a documentation address
    2001::/23           an IETF protocol address
    2000::/3
    ::/0                outside the global unicast space 2000::/3
"""
PRIVATE_NAMES = {       # a name or a parent of it
    "localhost": "a loopback name", "localdomain": "a loopback name", "ip6-localhost": "a loopback name", "ip6-loopback": "a loopback name",
    "local": "a name of the local link", "internal": "a name for private use", "home.arpa": "a name of a home network",
}


@cache
def address_blocks(bits: int) -> list[tuple[int, int, str]]:
    """(leading bits, how many follow them, reason) of the rows for addresses of 32 or of 128 bits."""
    number_of = ipv4_number if bits == 32 else ipv6_number
    rows = [row for row in re.findall(r"(\S+)/([0-9]+) *(.*)", ADDRESS_BLOCKS) if (":" in row[0]) == (bits == 128)]
    return [((number_of(block) or 0) >> bits - int(size), bits - int(size), reason) for block, size, reason in rows]


def block_reason(number: int, bits: int) -> str:
    return next((reason for block, shift, reason in address_blocks(bits) if number >> shift == block), "")


def address_refusal(address_text: str) -> str:
    """ "" where the IP literal is a public unicast address, else one line that says why it is not asked. Never raises.

    NAT64, 6to4, Teredo and IPv4 in IPv6 are judged by the address inside. The table is ours: `ipaddress.is_global` differs
    between patch releases.
    >>> address_refusal("8.8.8.8"), address_refusal("::ffff:7f00:1")
    ('', '::ffff:7f00:1 is 127.0.0.1 inside, a loopback address')
    """
    shown = printable(address_text, 80)
    if "%" in address_text:
        return f"{shown} has a scope: a link-local address"
    number, bits = ipv4_number(address_text), 32
    if number is None:
        number, bits = ipv6_number(address_text), 128
    if number is None:
        return f"{shown} is no IP address"
    reason = block_reason(number, bits)
    inside = {"IPv4 inside": [number], "6to4": [number >> 80], "Teredo": [number >> 64, ~number]}.get(reason)     # server, flipped client
    if inside is None:
        return reason and f"{shown} is {reason}"
    reasons = ((ipv4_text(ipv4), block_reason(ipv4, 32)) for ipv4 in (number & 0xFFFFFFFF for number in inside))
    return next((f"{shown} is {ipv4} inside, {reason}" for ipv4, reason in reasons if reason), "")


def host_refusal(host: str) -> str:
    """ "" where a normalised host may be asked as far as its spelling tells, else why not; what a name resolves to is for the door.

    >>> host_refusal("printer.local"), host_refusal("[::1]"), host_refusal("example.com")
    ('printer.local is a name of the local link', '::1 is a loopback address', '')
    """
    if host.startswith("[") or re.search(ENDS_IN_NUMBER, host):
        return address_refusal(host.strip("[]"))
    labels = host.split(".")
    reason = PRIVATE_NAMES.get(labels[-1]) or PRIVATE_NAMES.get(".".join(labels[-2:]))
    return f"{printable(host, 80)} is {reason}" if reason else ""


# === 5. ROBOTS   R2 a-d   spec 9.1 ========================================
# Owns the meaning of a robots.txt text and of the status it came with. Knows no clock, no cache, no network.

# Publishers make mistakes. What restricts us or names a group is read as meant, as the large crawlers do; a misspelt Allow never is (R2c).
ROBOTS_BLANKS = " \t\f\v\xa0\ufeff"         # editors leave no-break spaces and byte order marks behind; no line ends among them
ROBOTS_AGENT_FIELD = r"user[-_{blank}]*ag(?:ent|net|ant|nt)s?"
ROBOTS_DISALLOW_FIELD = r"d[ei](?:as|s*a?)l+[ao]w"
# A field without its colon is one where exactly one word follows: a line of prose is no rule.
ROBOTS_FIELD_END = r"(?:[{blank}]*:|[{blank}]+(?=[^{blank}\n#]+[{blank}]*(?:[\n#]|\Z)))"


def robots_line_regex(pattern: str) -> re.Pattern[str]:
    """A regex of whole fields. Texts have a line feed before every line, so that the search leaps from one to the next."""
    return lazy_re((r"(?ai)\n[{blank}]*" + pattern).replace("{blank}", ROBOTS_BLANKS))


ROBOTS_AGENT_LINE = robots_line_regex(ROBOTS_AGENT_FIELD + ROBOTS_FIELD_END + r"([^\n#]*)")
ROBOTS_RULE_LINE = robots_line_regex(rf"(?:(allow|crawl-delay)[{{blank}}]*:|{ROBOTS_DISALLOW_FIELD}{ROBOTS_FIELD_END})([^\n#]*)")
ROBOTS_DELAY_LINE = robots_line_regex(r"crawl-delay[{blank}]*:[{blank}]*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[{blank}]*(?=[\n#]|\Z)")
ROBOTS_SIGNAL_LINE = robots_line_regex(r"content-signal[{blank}]*:([^\n#]*)")
ROBOTS_SITEMAP_LINE = robots_line_regex(r"site-?map[{blank}]*:[{blank}]*(https?://[^\n#{blank}]+)")
ROBOTS_SIGNAL = lazy_re(r"(?<![A-Za-z0-9_-])([A-Za-z][A-Za-z0-9_-]*)[ \t]*=[ \t]*([A-Za-z0-9_-]+)")
# Of a line that was cut in two what might loosen or lead astray goes, and of any other what is not certain of its last octet (R2c).
ROBOTS_LOOSE_LINE = lazy_re(rf"(?i)[{ROBOTS_BLANKS}]*(?:allow|user|site|chain)")
ROBOTS_UNCERTAIN = r"(?:%[0-9A-Fa-f]?|\$)\Z"

# A raw `*` or `$` of a URL is `%2A` or `%24` to a rule (RFC 9309 figure 6): only rules have them among what stands as it is.
ROBOTS_STANDING = r"A-Za-z0-9\-._~:/?\[\]@!&'()+,;="
ROBOTS_PLAIN_TARGET = lazy_re(      # in one spelling already: escapes in upper case, and none of an unreserved octet
    rf"(?:https?://[^/?#]*)?(/[{ROBOTS_STANDING}]*(?:%(?:[0189A-F][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[BCDF])[{ROBOTS_STANDING}]*)*)")
ROBOTS_OCTET = lazy_re(rf"%([0-9A-Fa-f]{{2}})|[^{ROBOTS_STANDING}*$%]")
ROBOTS_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
ROBOTS_ORIGIN = r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*"
ROBOTS_UNDECODED = lazy_re("[\ud800-\udfff]")


def robots_meaning(status: int) -> str:
    """What an HTTP status of /robots.txt means: "rules", "none", "unreachable", "backoff" or "redirect". Spec 9.1.1.

    >>> [robots_meaning(status) for status in (200, 304, 307, 404, 429, 500)]
    ['rules', 'none', 'redirect', 'none', 'backoff', 'unreachable']
    """
    if status in REDIRECT_STATUSES:     # RFC 9309 2.3.1.2; any other 3xx leads nowhere: unavailable
        return "redirect"
    if status in BACKOFF_STATUSES:      # R5
        return "backoff"
    return {2: "rules", 3: "none", 4: "none"}.get(status // 100, "unreachable")


def robots_text(body: bytes | bytearray | str) -> tuple[str, bool]:
    """The lines that count, a line feed before each, and whether they are text: a binary has a NUL, or is to a third no UTF-8.

    (RFC 9309 2.3.1.5 still obeys the lines of a binary.) Octets that are no UTF-8 come percent-encoded, as rules compare them.
    """
    if isinstance(body, str):
        body = body[:MAX_ROBOTS_BYTES + 1].encode("utf-8", "surrogatepass")
    text = "\n" + body[:MAX_ROBOTS_BYTES].decode("utf-8", "surrogateescape")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if body[MAX_ROBOTS_BYTES:MAX_ROBOTS_BYTES + 1] not in b"\r\n":
        above, _, line = text.rpartition("\n")
        text = f"{above}\n" + ("" if ROBOTS_LOOSE_LINE.match(line) else line[:-2] + re.sub(ROBOTS_UNCERTAIN, "#", line[-2:]))
    undecoded = 0
    if not text.isascii():
        text, undecoded = ROBOTS_UNDECODED.subn(lambda octet: f"%{ord(octet[0]) & 255:02X}", text)
    return text, "\0" not in text and undecoded * 5 < len(text)         # each has become three characters


def robots_agent_name(value: str) -> str:
    """The product token of a User-agent value, lower-case; "" where it names nobody. Spec 9.1.3.

    >>> [robots_agent_name(value) for value in ("Walsh-Research/1.2", "Walsh*", "* all", "/")]
    ['walsh-research', 'walsh', '*', '']
    """
    words = value.partition("/")[0].split(None, 1)
    return words[0].rstrip("*").lower() or "*" if words and words[0].isascii() else ""


def robots_group(text: str, token: str) -> tuple[str | None, list[tuple[int, str]]]:
    """The selected User-agent value as written, or None, and its groups: how many lines stand above, the lines. R2a, spec 9.1.2 and 9.1.3."""
    before, *parts = ROBOTS_AGENT_LINE.split(text)
    values = [value.strip(ROBOTS_BLANKS) for value in parts[::2]]
    names = [robots_agent_name(value) for value in values]
    wanted = max((name for name in names if name and token.startswith(name)), key=len, default="*")
    groups: list[tuple[int, str]] = []
    number, group, is_ours = before.count("\n"), "", False
    for name, below in zip(names, parts[1::2]):
        group += "\n" + below
        is_ours = is_ours or name == wanted
        if ROBOTS_RULE_LINE.search(below):      # a rule closes the list of agents
            groups += [(number, group)] * is_ours
            number += group.count("\n")
            group, is_ours = "", False
    groups += [(number, group)] * is_ours
    return values[names.index(wanted)] if wanted in names else None, groups


def robots_rules(groups: Iterable[tuple[int, str]]) -> Iterator[Rule]:
    """The Allow and Disallow lines, in file order."""
    for number, lines in groups:
        at = 0
        for found in ROBOTS_RULE_LINE.finditer(lines):
            number += lines.count("\n", at, at := found.start() + 1)
            if (found[1] or "allow").lower() == "allow":
                yield Rule(bool(found[1]), found[2].strip(ROBOTS_BLANKS), number)


def robots_octet_form(found: re.Match[str]) -> str:
    octet = int(found[1], 16) if found[1] else ord(found[0])
    return chr(octet) if chr(octet) in ROBOTS_UNRESERVED else f"%{octet:02X}"


def robots_octets(text: str) -> str:
    """One spelling for both sides: unreserved octets decoded, unsafe ones and those beyond ASCII encoded, hex in upper case.

    Reserved characters stay as they stand: `%2F` is not `/` (spec 9.1.4, RFC 9309 2.2.2). One pass, so that `%2541` never becomes `%41`.
    >>> robots_octets("/%7eann/%2fx y")
    '/~ann/%2Fx%20y'
    """
    return ROBOTS_OCTET.sub(robots_octet_form, text.encode("utf-8", "surrogatepass").decode("latin-1"))


def robots_target(target: str) -> str:
    """What rules are held against: path and query of an absolute URL or of a `path[?query]`, in one spelling. Never raises.

    >>> robots_target("https://x.test?q=%41#top"), robots_target("/a/%2e%2E/b")
    ('/?q=A', '/b')
    """
    plain = ROBOTS_PLAIN_TARGET.fullmatch(target)       # most are: one look instead of six
    if plain and "/." not in (path := plain[1]):
        return path
    target = re.sub(ROBOTS_ORIGIN, "", target).partition("#")[0]
    path, mark, query = robots_octets(target).replace("*", "%2A").replace("$", "%24").partition("?")
    return resolve_dot_segments(path or "/") + mark + query


class RobotsIndex(NamedTuple):
    """The rules of a group, ready to be asked: literal values sorted, so that a decision bisects them and never walks them.

    A path is asked with a `$` at its end, which no other character of it is: so a rule's final `$` is a character like any.
    """

    prefixes: list[str]                             # "" and all literal values, sorted
    parents: list[int]                              # of each: the position of the longest other one that it begins with
    outcomes: list[tuple[int, Rule | None]]         # of each: the octets that it covers, the rule
    patterns: list[tuple[str, list[str], Rule]]     # values with a `*`: the longest piece, without which nothing else need be tried; all of them
    affordable: int                                 # octets of a path that all patterns may be tried on


def robots_match_length(pieces: Sequence[str], path: str, longest: bool) -> int:
    """Octets of `path` that a value covers by its longest or its shortest expansion, -1 where it does not match. Both end in `$`.

    R2b, spec 9.1.4. Other parsers count the pattern; here a `*`, which stands between pieces, counts what it consumed, `$` counts nothing,
    and pieces never overlap. The leftmost place for every inner piece leaves the most room to the last one, which alone decides the length.
    >>> robots_match_length(["/", ".pdf$"], "/docs/a.pdf$", longest=True)
    11
    >>> [robots_match_length(["/a", "b"], "/abxbx$", longest) for longest in (True, False)]
    [5, 3]
    """
    head, *inner, last = pieces
    if not path.startswith(head):
        return -1
    at = len(head)
    for piece in inner:
        at = path.find(piece, at) + len(piece)
        if at < len(piece):
            return -1
    at = path.rfind(last, at) if longest else path.find(last, at)
    return min(at + len(last), len(path) - 1) if at >= 0 else -1


def robots_index(rules: Iterable[Rule]) -> RobotsIndex:
    """The rules of one group, made ready."""
    rule_of: dict[tuple[str, bool], Rule] = {}
    for rule in rules:
        value = robots_octets(rule.value)
        value = value[:-1].replace("$", "%24") + value[-1:]         # only a final `$` is an anchor
        rule_of.setdefault((value, rule.allow), rule)
    literals: dict[str, tuple[int, Rule | None]] = {}
    patterns: list[tuple[str, list[str], Rule]] = []
    weight = 1              # of all patterns: one each, and one for every 64 characters of it
    for (value, allow), rule in rule_of.items():
        if "*" in value:
            pieces = re.split(r"\*+", value)
            patterns.append((max(pieces, key=len), pieces, rule))
            weight += 1 + len(value) // 64
        elif allow or (value, True) not in rule_of:                 # of equals, Allow wins (spec 9.1.4)
            literals[value] = len(value) - value.endswith("$"), rule
    literals[""] = -1, None                                         # an empty value matches nothing
    prefixes, parents, outcomes = sorted(literals), [0], [literals[""]]
    for previous, prefix in enumerate(prefixes[1:]):
        parent = previous
        while not prefix.startswith(prefixes[parent]):
            parent = parents[parent]
        parents.append(parent)
        outcomes.append(max(literals[prefix], outcomes[parent]))    # `/a$` and `/a` are equals
    return RobotsIndex(prefixes, parents, outcomes, patterns, MAX_WILDCARD_OCTETS // weight)


class RobotsTxt(NamedTuple):
    """A robots.txt as one product token reads it: the selected group and what stands outside of groups. R2.

    >>> robots = RobotsTxt.parse("User-agent: *\\nDisallow: /private\\nAllow: /private/tea")
    >>> robots.group, robots.allows("https://x.test/private/tea?cup=2"), robots.match("/private")
    ('*', True, Rule(allow=False, value='/private', line=2))
    """

    group: str | None                   # the selected User-agent value as the file writes it
    crawl_delay: float | None           # seconds, the largest of the group; None where it names none. R2d, spec 9.1.5
    content_signals: dict[str, str]     # of the group, as {"ai-train": "no"}; it binds uses of content that this bot makes none of, and is no gate
    otherwise: Verdict                  # where no rule matches
    made_ready: RobotsIndex
    token: str
    text: str

    @classmethod
    def parse(cls, body: bytes | bytearray | str, token: str = UA_TOKEN) -> RobotsTxt:
        """The reading of `body` (its first 500 KiB) by `token`. Never raises. Spec 9.1.1 to 9.1.3."""
        text, is_text = robots_text(body)
        token = robots_agent_name(token)
        group, groups = robots_group(text, token)
        lines = "".join(lines for _, lines in groups)
        delays = map(float, ROBOTS_DELAY_LINE.findall(lines))
        signals = ROBOTS_SIGNAL.findall(",".join(ROBOTS_SIGNAL_LINE.findall(lines)))
        signals.sort(key=lambda signal: signal[1].lower() == "no")      # where lines contradict each other, "no" stands
        return cls(
            group, max((seconds for seconds in delays if seconds < math.inf), default=None),
            {name.lower(): answer for name, answer in signals},
            Verdict.ALLOWED_IMPLICIT if is_text else Verdict.UNKNOWN_PARSE_ERROR, robots_index(robots_rules(groups)), token, text)

    @property
    def rules(self) -> list[Rule]:
        """The Allow and Disallow lines of the selected groups, in file order."""
        return list(robots_rules(robots_group(self.text, self.token)[1]))

    @property
    def sitemaps(self) -> list[str]:
        """Absolute http(s) URLs of the Sitemap lines, which belong to no group, in file order."""
        return [url for url in ROBOTS_SITEMAP_LINE.findall(self.text) if len(url) <= MAX_SITEMAP_URL_LENGTH][:MAX_SITEMAPS]

    def match(self, target: str) -> Rule | None:
        """The rule that decides, or None where none matches. R2b, spec 9.1.4: the longest match; of equals, Allow."""
        prefixes, parents, outcomes, patterns, affordable = self.made_ready
        path = robots_target(target) + "$"
        # Whatever sorts between a prefix of `path` and `path` begins with that prefix: all that match are the neighbour or its parents.
        position = bisect_right(prefixes, path) - 1
        while position and not path.startswith(prefixes[position]):
            position = parents[position]
        best_length, best = outcomes[position]
        if len(path) > affordable:      # R2c: what would take too long to know is denied, from the first `*` on
            patterns = [("", [pieces[0], ""], rule) for _, pieces, rule in patterns if not rule.allow]
        for needle, pieces, rule in patterns:
            if needle in path:
                length = robots_match_length(pieces, path, longest=not rule.allow)
                if length > best_length or length == best_length >= 0 and rule.allow:
                    best_length, best = length, rule
        return best if best and not path.startswith(("/robots.txt$", "/robots.txt?")) else None     # implicitly allowed (RFC 9309 2.2.2)

    def ruling(self, target: str) -> tuple[Verdict, Rule | None]:
        """What the file says of `target`, an absolute URL or a `path[?query]`, and the rule that decides."""
        rule = self.match(target)
        if rule is None:
            return self.otherwise, None
        return Verdict.ALLOWED_EXPLICIT if rule.allow else Verdict.DISALLOWED_EXPLICIT, rule

    def verdict(self, target: str) -> Verdict:
        return self.ruling(target)[0]

    def allows(self, target: str) -> bool:
        """False where a Disallow line wins."""
        rule = self.match(target)
        return rule is None or rule.allow


# === 6. SCHEMA   R3c   spec 9.2, 11.1 ====================================
# Owns JSON as it arrives and a Draft 2020-12 subset: a schema is compiled once to closures, then applied. Knows no blocklist.

def json_depth(body: bytes) -> int:
    """How many arrays and objects are open at once, at most: counted without the decoder, whose own C recursion must never begin."""
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")          # escapes first: then every quote begins or ends a string
    bare = bare.translate(bytes.maketrans(b"[{]}", b"\1\1\xff\xff"), bytes(set(range(256)) - set(b'"[]{}')))
    bare = b"".join(bare.replace(b'""', b"").split(b'"')[::2])
    return max(itertools.accumulate(memoryview(bare).cast("b")), default=0)


def parse_json(body: bytes, what: str) -> Any:
    """The JSON value in `body` (UTF-8, a byte order mark is accepted); ValueError names `what` where there is none.

    Refused besides broken JSON: NaN and Infinity, deeper nesting than MAX_JSON_DEPTH, integers that take quadratic time.
    >>> parse_json(b'{"refresh": "PT6H"}', "blocklist")
    {'refresh': 'PT6H'}
    """
    import json  # only where a document arrives

    if json_depth(body) > MAX_JSON_DEPTH:
        raise ValueError(f"{what} nests deeper than {MAX_JSON_DEPTH} levels")
    try:        # int() itself refuses what is none
        return json.loads(body.decode("utf-8-sig"), parse_constant=int,
                          parse_int=lambda digits: int(digits if len(digits) <= MAX_JSON_DIGITS else digits[:20] + "…"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON: {error}") from None


# 6a. Patterns: ECMA 262, written again for `re`, which must never backtrack without bound.
ECMA_SPACES = {      # within a set; with re.ASCII, `\s` alone is the first six
    "\\s": r"\s\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
    "\\S": r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\ufefe"
           r"\uff00-\U0010ffff"}
PATTERN_ESCAPE = r"\\[dDwWsStnvfr]|\\0(?![0-9])|\\x[0-9A-Fa-f]{2}|\\u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4}|\\[!-/:-@\[-`{-~]"
PATTERN_TOKEN = lazy_re(
    rf"(?P<set>\[\^?(?:{PATTERN_ESCAPE}|\\b|(?!--)[^\]\\])*\])|(?P<atom>{PATTERN_ESCAPE}|[^\\()\[\]{{}}*+?|^$])|(?P<edge>\\b|[$^])"
    r"|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))|(?P<bar>\|)|(?P<count>(?:[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})\??(?![*+?{]))")
REWRITTEN_TOKENS = {"(": "(?:", "$": r"\Z", ".": r"[^\n\r\u2028\u2029]", **{escape: f"[{items}]" for escape, items in ECMA_SPACES.items()}}
REWRITTEN_IN_SETS = lazy_re(r"(?!^)(?:\\.|[\[&~|])")        # but for the escapes, what `re` would take for the algebra of sets
BEYOND_ASCII = lazy_re(r"(?=[^ -~]|\[\^|\\[xuUDWS])")       # a class, as written for `re`, that may hold more than ASCII: "" stands for that


def pattern_automaton(tokens: list[tuple[str, str]]) -> tuple[list[set[str]], list[set[int]]]:
    """Glushkov's: what each state reads, and which states may read next. State 0 is the beginning, state 1 what a search skips.

    States are numbered as they stand in the pattern: only a repeated group leads backwards. Every count but `?` passes for endless, which
    only makes the proof stricter.
    """
    ascii_text = bytes(range(128)).decode()
    reads, follow = [set(), {"", *ascii_text}], [set(), set()]      # type: list[set[str]], list[set[int]]
    here, before, piece, groups = {0, 1}, set(), 0, []      # type: set[int], set[int], int, list[tuple[set[int], int, set[int]]]
    for kind, written in [("open", "("), *tokens, ("close", ")")]:
        # who may have read last is `here`, and was `before` the piece, whose first state is `piece`
        if kind == "count":
            again = {state for earlier in before for state in follow[earlier] if state >= piece and written[0] != "?"}
            if before & here or any(again & follow[state] for state in here):
                raise ValueError("could backtrack without bound")
            for state in here:
                follow[state] |= again
            here = here | before if written[0] in "*?" or "{0" in written else here
        elif kind in ("bar", "close"):
            before, piece, ends = groups[-1]
            if before & here & ends:
                raise ValueError("two ways to match nothing")
            ends |= here
            here = before if kind == "bar" else groups.pop()[2]
        elif kind == "open":
            groups.append((here, len(reads), set()))
        elif kind != "edge":
            before, piece = here, len(reads)
            for state in before:
                follow[state].add(piece)
            here = {piece}
            follow.append(set())
            reads.append({*re.findall(written, ascii_text, re.ASCII), *BEYOND_ASCII.findall(written)})
        elif written == "^":
            here = here - {1}       # nothing was skipped
    for state in (0, 1) if follow[1] else ():
        follow[state].add(1)
    return reads, follow


def longest_text(tokens: list[tuple[str, str]]) -> int:
    """How long a text the pattern may see; ValueError where it could backtrack without bound.

    Where no two ways through a pattern read the same text, backtracking is linear. Where two do, it is a power of the length, by the
    repeated characters; a repeated group could make it exponential.
    """
    reads, follow = pattern_automaton(tokens)
    pairs, steps = [(0, 0)], 0
    seen = set(pairs)
    for left, right in pairs:       # of states that one text leads to; grows while it is read
        steps += len(follow[left]) * len(follow[right])
        if steps > MAX_PATTERN_STEPS:
            raise ValueError("too large to be proved harmless")
        fresh = {(one, other) for one, other in itertools.product(follow[left], follow[right]) if not reads[one].isdisjoint(reads[other])} - seen
        seen |= fresh
        pairs += fresh
    if not any(left != right and follow[left] & follow[right] for left, right in pairs):
        return sys.maxsize
    powers = sum(state in later for state, later in enumerate(follow))
    choices = sum(kind == "bar" or written[0] == "?" for kind, written in tokens)
    if powers > 3 or choices > 6 or any(min(later, default=state) < state for state, later in enumerate(follow)):
        raise ValueError("could backtrack without bound")
    return int(MAX_PATTERN_WORK ** (1 / max(powers, 2)))


def compile_pattern(source: str) -> Callable[[str], Any]:
    """An ECMA pattern as a search. UnsupportedSchema where it is none that is read here, or could backtrack without bound."""
    found = list(PATTERN_TOKEN.finditer(source[:MAX_PATTERN_LENGTH]))
    tokens = [(str(token.lastgroup), REWRITTEN_TOKENS.get(token[0], token[0]) if token["set"] is None else
               REWRITTEN_IN_SETS.sub(lambda item: ECMA_SPACES.get(item[0], "\\" + item[0][-1]), token[0])) for token in found]
    try:
        if "".join(token[0] for token in found) != source:
            raise ValueError(f"a part that is not supported, or more than {MAX_PATTERN_LENGTH} characters")
        search = re.compile("".join(written for _, written in tokens), re.ASCII).search     # `re` sees to the syntax
        longest = longest_text(tokens)
    except (ValueError, OverflowError, RecursionError, re.error) as error:
        raise UnsupportedSchema(f"pattern {source[:80]!r}: {error}") from None

    def search_bounded(text: str) -> Any:
        if len(text) > longest:
            raise UnsupportedSchema(f"pattern {source[:80]!r}: {len(text)} characters, want at most {longest}")
        return search(text)
    return search if longest == sys.maxsize else search_bounded


# 6b. Schemas: each becomes a table of checks, by the type of the instance.
class SchemaMismatch(Exception):
    """An assertion that failed, on its way up: the pointer so far, keyword, detail."""


if TYPE_CHECKING:
    SchemaCheck = Callable[[Any], Any]      # true where it holds; else false, or SchemaMismatch
    CheckTable = dict[type, list[tuple[str, SchemaCheck, Any]]]     # what is asked of a value by its type: the keyword, the check, what it wants


def brief_value(value: Any) -> str:
    """A value for a message, whatever its size: 5,000 digits are more than `str` converts."""
    if isinstance(value, list) and len(value) < 9 and all(isinstance(item, str) for item in value):
        return str(value)[:200]
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    return repr(value[:60] if isinstance(value, str) else value)


JSON_TYPES = {dict: ["object"], list: ["array"], str: ["string"], int: ["integer", "number"], float: ["number"], bool: ["boolean"], type(None): ["null"]}


def json_key(value: Any) -> Any:
    """What equal JSON values share (1.0 is 1, true is not, members have no order). Integers as bytes: made to collide when hashed, they could stall."""
    if isinstance(value, dict):
        return frozenset((name, json_key(content)) for name, content in value.items())
    if isinstance(value, list):
        return tuple(map(json_key, value))
    return b"%x" % int(value) if type(value) in (int, float) and value % 1 == 0 else value


def anything(value: Any) -> bool:
    return True


def holds(check: SchemaCheck, value: Any) -> bool:
    try:
        return bool(check(value))
    except SchemaMismatch:
        return False


def pointer_part(name: Any) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def parts_check(parts_of: Callable[[Any], Iterable[tuple[Any, Any]]], find: Callable[[Any, SchemaCheck], SchemaCheck], rest: Any) -> SchemaCheck:
    """What an instance holds, each part by the check that its name or number finds, else by `rest`."""
    otherwise = rest or anything

    def check_parts(instance: Any) -> bool:
        name: Any = ""
        try:
            for name, part in parts_of(instance):
                find(name, otherwise)(part)
        except SchemaMismatch as mismatch:
            pointer, *details = mismatch.args
            raise SchemaMismatch(f"/{pointer_part(name)}{pointer}", *details) from None
        return True
    return check_parts


def members_check(properties: Any, patterns: Any, rest: Any) -> SchemaCheck:
    searches = [(compile_pattern(source), check) for source, check in (patterns or {}).items()]
    named = (properties or {}).get

    def find(name: str, otherwise: SchemaCheck) -> SchemaCheck:
        checks = [check for check in (named(name), *(check for search, check in searches if search(name))) if check]
        return (lambda content: all(check(content) for check in checks)) if checks else otherwise
    return parts_check(dict.items, find if patterns else named, rest)


def multiple_check(step: Any) -> SchemaCheck:
    """As JSON writes the numbers: 0.07 is a multiple of 0.01, which binary fractions deny."""
    from fractions import Fraction  # only for this keyword

    def exact(number: Any) -> Fraction:
        return Fraction(number if isinstance(number, int) else repr(number))
    return lambda value: value - value == 0 and exact(value) % exact(step) == 0      # infinity is none


def among_check(values: list[Any]) -> SchemaCheck:
    keys = frozenset(map(json_key, values))
    return lambda value: json_key(value) in keys


def at_least(least: int) -> SchemaCheck:
    return lambda value: len(value) >= least


def at_most(most: int) -> SchemaCheck:
    return lambda value: len(value) <= most


NOT_JSON: list[tuple[str, SchemaCheck, Any]] = [("type", lambda value: False, "JSON")]
# What is asserted: the types that the keywords are about, and the check that the keyword's value makes, once compiled. Where several
# keywords make one check, their values come in this order, None for each that is absent.
ASSERTIONS: list[tuple[Iterable[type], dict[str, Callable[..., SchemaCheck]]]] = [
    ([int, float], {
        "minimum": lambda least: lambda value: value >= least, "exclusiveMinimum": lambda less: lambda value: value > less,
        "maximum": lambda most: lambda value: value <= most, "exclusiveMaximum": lambda more: lambda value: value < more,
        "multipleOf": multiple_check}),
    ([str], {"minLength": at_least, "maxLength": at_most, "pattern": compile_pattern}),
    ([list], {
        "minItems": at_least, "maxItems": at_most,
        "uniqueItems": lambda wanted: lambda value: not wanted or len(set(map(json_key, value))) == len(value),
        "items prefixItems": lambda rest, first: parts_check(enumerate, (first or {}).get, rest),
        "contains minContains maxContains": lambda check, least, most: lambda value: not check or (
            (1 if least is None else least) <= sum(holds(check, item) for item in value) <= (len(value) if most is None else most))}),
    ([dict], {
        "minProperties": at_least, "maxProperties": at_most, "required": lambda names: frozenset(names).issubset,
        "properties patternProperties additionalProperties": members_check,
        "dependentRequired": lambda others: lambda value: all(value.keys() >= set(others[name]) for name in others.keys() & value.keys()),
        "dependentSchemas": lambda checks: lambda value: all(checks[name](value) for name in checks.keys() & value.keys()),
        "propertyNames": lambda check: lambda value: all(holds(check, name) for name in value)}),
    (JSON_TYPES, {
        "enum": among_check, "const": lambda wanted: among_check([wanted]), "not": lambda check: lambda value: not holds(check, value),
        "allOf": lambda checks: lambda value: all(check(value) for check in checks.values()),
        "anyOf": lambda checks: lambda value: any(holds(check, value) for check in checks.values()),
        "oneOf": lambda checks: lambda value: sum(holds(check, value) for check in checks.values()) == 1,
        "if then else": lambda test, then, otherwise: lambda value: not test or ((then if holds(test, value) else otherwise) or anything)(value)}),
]
IN_PLACE = lazy_re(r"(?:/not|/if|/then|/else|/(?:allOf|anyOf|oneOf|dependentSchemas)/[^/]*)*")      # between schemas that see the same value
# What the value of each keyword must be, as a schema; a keyword that is not here is an annotation.
A_SCHEMA, A_TEXT = {"type": ["object", "boolean"]}, {"type": "string"}
SCHEMAS, SCHEMA_MAP = {"type": "array", "minItems": 1, "items": A_SCHEMA}, {"type": "object", "additionalProperties": A_SCHEMA}
NAMES = {"type": "array", "items": A_TEXT, "uniqueItems": True}
A_TYPE = {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]}
KEYWORD_SHAPES: dict[str, Any] = {keyword: shape for keywords, shape in [
    ("not if then else items contains additionalProperties propertyNames", A_SCHEMA), ("allOf anyOf oneOf prefixItems", SCHEMAS),
    ("$defs definitions dependentSchemas properties patternProperties", SCHEMA_MAP), ("$id $ref $anchor pattern", A_TEXT), ("required", NAMES),
    ("minimum maximum exclusiveMinimum exclusiveMaximum", {"type": "number"}), ("uniqueItems", {"type": "boolean"}), ("enum", {"type": "array"}),
    ("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains", {"type": "integer", "minimum": 0}),
    ("multipleOf", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": math.inf}),
    ("dependentRequired", {"type": "object", "additionalProperties": NAMES}),
    ("type", {"anyOf": [A_TYPE, {**NAMES, "minItems": 1, "items": A_TYPE}]}),
    ("$schema", {"enum": ["https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"]}),
    ("unevaluatedItems unevaluatedProperties $dynamicRef $recursiveRef $vocabulary", False)] for keyword in keywords.split()}


def table_check(table: CheckTable) -> SchemaCheck:
    checks_of = table.get

    def check_value(value: Any) -> bool:
        for keyword, check, wanted in checks_of(type(value), NOT_JSON):
            if not check(value):
                raise SchemaMismatch("", keyword, f"{brief_value(value)}, want {brief_value(wanted)}")
        return True
    return check_value


def schema_function(root: Any, is_well_formed: SchemaCheck) -> Callable[[Any], None]:
    """Every schema in `root` is read, used or not, then what each $ref names: a refusal must not depend on what is used."""
    from graphlib import CycleError, TopologicalSorter
    from urllib.parse import unquote

    # By place, the JSON Pointer of a schema in `root`; how often each is applied; what was seen.
    tables, anchors, references = {}, {}, {}        # type: dict[str, CheckTable], dict[str, str], dict[str, str]
    applied, known = collections.Counter(), {}      # type: collections.Counter[str], dict[tuple[int, int], Any]

    def check_of(schema: Any, keyword: str, place: str) -> SchemaCheck:
        if max(len(tables), len(place)) > MAX_SUBSCHEMAS:
            raise UnsupportedSchema(f"more than {MAX_SUBSCHEMAS} subschemas, or a pointer of more characters")
        applied[place] += keyword != "$defs"
        if isinstance(schema, bool):
            tables[place] = {kind: [(keyword, lambda value: schema, schema)] for kind in JSON_TYPES}
            return table_check(tables[place])
        is_well_formed(schema)
        if "$id" in schema and place or anchors.setdefault(schema.get("$anchor", place), place) != place:
            raise UnsupportedSchema("an $id within the document, or an $anchor that is given twice, is not supported")
        if "$ref" in schema:
            references[place] = schema["$ref"]
        given = {keyword: compiled(keyword, content, place) for keyword, content in schema.items()}
        types = schema.get("type", A_TYPE["enum"])      # no type's name is in another's: a lone one needs no list
        table = tables[place] = {kind: [] if any(name in types for name in names) else [
            ("type", lambda value: isinstance(value, float) and value.is_integer() and "integer" in types, types)] for kind, names in JSON_TYPES.items()}
        for kinds, makers in ASSERTIONS:
            for keywords, make in makers.items():
                names = keywords.split()
                if not given.keys().isdisjoint(names):
                    check = make(*map(given.get, names))
                    for kind in kinds:
                        table[kind].append((names[0], check, schema.get(names[0])))
        return table_check(table)

    def compiled(keyword: str, content: Any, holder: str) -> Any:
        """The schemas of a keyword's value as checks, alone or by name or number; else the value itself."""
        shape, place = KEYWORD_SHAPES.get(keyword), f"{holder}/{keyword}"
        if shape in (SCHEMAS, SCHEMA_MAP):
            named = content if isinstance(content, dict) else dict(enumerate(content))
            return {name: check_of(child, keyword, f"{place}/{pointer_part(name)}") for name, child in named.items()}
        return check_of(content, keyword, place) if shape is A_SCHEMA else content

    def remembering(check: SchemaCheck) -> SchemaCheck:
        """A schema that several places apply sees each value once, so that doubling is no work."""
        def check_once(value: Any) -> bool:
            key = (id(check), id(value))
            if key not in known:
                try:
                    known[key] = check(value)
                except SchemaMismatch as mismatch:
                    known[key] = mismatch.args
            if known[key] is not True:
                raise SchemaMismatch(*known[key])
            return True
        return check_once

    check_root = check_of(root, "false", "")
    for place, reference in references.items():
        base, _, fragment = reference.partition("#")
        target = anchors.get(unquote(fragment), unquote(fragment))
        if base not in ("", root.get("$id", "").partition("#")[0]) or target not in tables:
            raise UnsupportedSchema(f"$ref {reference[:200]!r} names no schema of this document")
        references[place] = target
        applied[target] += 1
        check = table_check(tables[target])
        for checks in tables[place].values():
            checks.append(("$ref", check, ""))
    try:
        TopologicalSorter({top: [target for place, target in references.items() if place.startswith(top) and IN_PLACE.fullmatch(place, len(top))]
                           for top in {*references.values()}}).prepare()
    except CycleError:
        raise UnsupportedSchema("a $ref leads back to itself without descending") from None
    for place, table in tables.items():
        if applied[place] > 1:
            table.update({kind: [("", remembering(table_check({**table})), "")] for kind in table})

    def check_instance(instance: Any) -> None:
        known.clear()       # identities are those of the last instance
        try:
            check_root(instance)
        except SchemaMismatch as mismatch:
            raise SchemaViolation(*mismatch.args) from None
        except RecursionError:
            raise SchemaViolation("", "$ref", "nests deeper than can be validated") from None
    return check_instance


@cache
def well_formed_check() -> Callable[[Any], None]:
    return schema_function({**A_SCHEMA, "properties": KEYWORD_SHAPES}, anything)


def compile_schema(schema: Any) -> Callable[[Any], None]:
    """The schema as a function of the instance: None where it holds, else SchemaViolation. R3c, Draft 2020-12.

    UnsupportedSchema where it asserts what is not implemented here, is malformed, never ends, or holds a pattern that may
    backtrack without bound; the function raises it where a text is too long for its pattern. `format`, `content*` and unknown keywords are annotations.
    """
    try:
        return schema_function(schema, well_formed_check())
    except (SchemaViolation, RecursionError) as error:
        raise UnsupportedSchema(f"it is malformed: {error}") from None


def validate(instance: Any, schema: Any) -> None:
    """None where the parsed JSON `instance` holds; SchemaViolation (JSON Pointer, keyword) or UnsupportedSchema, both ValueError.

    >>> validate({"domain": "example.com"}, {"required": ["domain"]})
    >>> validate([1, "two"], {"items": {"type": "integer"}})
    Traceback (most recent call last):
    walsh_research.SchemaViolation: /1: type: 'two', want 'integer'
    """
    compile_schema(schema)(instance)


# === 7. BLOCKLIST   R3 a c, R10   spec 9.2, 11.1 =========================
# Owns which document is adopted and which host it covers. Forgiving about spelling: an opt-out must never be lost.
CONTRACT_MAJOR_1 = lazy_re(BLOCKLIST_CONTRACT + r"(?:\.[0-9]+)*")
URL_TAIL = lazy_re(r"[/?#\\]")
NO_DOMAIN = lazy_re(r"[\x00-\x20\x7f\"#%*,/<>?@\\^`{|}]|\.\.")
IGNORED_IN_HOSTS = dict.fromkeys([0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFE0F, 0xFEFF])      # what IDNA maps to nothing


class BlockedDomain(NamedTuple):
    """One opt-out; `domain` as the document lists it, the rest is informational."""

    domain: str
    added: str
    reason: str


def folded_host(text: str) -> str:
    """Full-width, ideographic stops, NFD and case become one form. ß stays itself: its punycode is another name than `ss`."""
    import unicodedata  # only for names beyond ASCII
    text = unicodedata.normalize("NFKC", text.translate(IGNORED_IN_HOSTS))
    return unicodedata.normalize("NFKC", text.lower()).replace("\u03c2", "\u03c3").replace("\u3002", ".")


def unicode_label(label: str) -> str:
    """An A-label as its folded U-label; any other label as it stands."""
    if not label.startswith("xn--") or not 4 < len(label) <= 63:        # the codec is quadratic
        return label
    try:
        decoded = folded_host(label[4:].encode("ascii").decode("punycode"))
    except (UnicodeError, OverflowError):
        return label
    return label if decoded.isascii() or NO_DOMAIN.search(decoded) or "." in decoded else decoded


def is_plain_host(host: str) -> bool:
    """Whether it is its own blocklist_key, as most are: thrice as fast as a regular expression."""
    return bool(host.isascii() and host.islower() and host.replace(".", "").replace("-", "").isalnum() and host[0] != "." != host[-1]
                and ".." not in host and "xn--" not in host and len(host) <= MAX_BLOCKLIST_KEY)


def blocklist_key(host: str) -> str:
    """The one form in which listed domains and asked hosts are compared; "" where nothing is left.

    >>> blocklist_key(" *.B\\u00dcCHER.example.:443 ") == blocklist_key("xn--bcher-kva.example")
    True
    """
    if "%" in host:
        from urllib.parse import unquote  # only for a percent-encoded host
        host = unquote(host)
    host = host.lower() if host.isascii() else folded_host(host)
    host = URL_TAIL.split(host.split("//", 1)[-1], maxsplit=1)[0].rpartition("@")[2].strip()
    if host.startswith("[") or host.count(":") > 1:
        from ipaddress import ip_address  # only for a host in IPv6 form
        host = host.lstrip("[").partition("]")[0].partition("%")[0]
        try:
            return str(ip_address(host))
        except ValueError:
            return host.strip(". ")
    host = host.partition(":")[0].lstrip("*. \t\r\n").rstrip(". \t\r\n")
    return ".".join(map(unicode_label, host.split("."))) if "xn--" in host else host


def listed_domains(blocked: list[Any], warnings: list[str]) -> dict[str, dict[str, Any]]:
    """key -> the first entry, where that can be a domain; BlocklistRejected where one is no object with a string `domain`."""
    listed: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(blocked):
        domain = entry.get("domain") if isinstance(entry, dict) else None
        if not isinstance(domain, str):
            raise BlocklistRejected(f"/blocked/{number}: domain is {brief_value(domain)}, want a string")
        is_plain = is_plain_host(domain)
        key = domain if is_plain else blocklist_key(domain)
        if is_plain or key and len(key) <= MAX_BLOCKLIST_KEY and not NO_DOMAIN.search(key):
            listed.setdefault(key, entry)
        else:
            warnings.append(f"/blocked/{number}: {brief_value(domain)} cannot be a domain")
    return listed


def blocklist_refresh_seconds(refresh: Any, warnings: list[str]) -> float:
    """The document's own refresh, kept within five minutes and seven days; PT6H where it names none that can be read."""
    try:
        seconds = parse_duration(refresh if isinstance(refresh, str) else "")
    except ValueError:
        warnings.append(f"refresh is {brief_value(refresh)}, taken as {BLOCKLIST_REFRESH}")
        seconds = parse_duration(BLOCKLIST_REFRESH)
    return float(min(max(seconds, MIN_BLOCKLIST_REFRESH_SECONDS), MAX_BLOCKLIST_REFRESH_SECONDS))


class Blocklist:
    """An adopted list of opt-outs (R3). Look-ups do not grow with its length.

    `refresh_seconds` (float, within five minutes and seven days), `updated` (as the document writes it), `warnings`
    (at most MAX_BLOCKLIST_WARNINGS lines about entries that cannot hold).
    """

    def __init__(self, columns: dict[str, Any], warnings: Sequence[str] = ()) -> None:
        """From what to_columns gave; ValueError where the shape is another."""
        types = {"keys": str, "domains": str, "added": str, "reasons": str, "refresh_seconds": float, "updated": str}
        if not isinstance(columns, dict) or {name: type(value) for name, value in columns.items()} != types:
            raise ValueError("no blocklist columns")
        self._columns, self._rows, self.warnings = columns, [], tuple(warnings)      # type: dict[str, Any], list[list[str]], tuple[str, ...]
        self.refresh_seconds: float = columns["refresh_seconds"]
        self.updated: str = columns["updated"]
        keys = columns["keys"].split("\n") if columns["keys"] else []
        self._index = dict(zip(keys, range(len(keys))))
        line_ends = {columns[name].count("\n") for name in ("keys", "domains", "added", "reasons")}
        if line_ends != {max(len(self) - 1, 0)} or "" in self._index or not (
                MIN_BLOCKLIST_REFRESH_SECONDS <= self.refresh_seconds <= MAX_BLOCKLIST_REFRESH_SECONDS):
            raise ValueError("blocklist columns of unequal length, or a refresh out of bounds")

    def __len__(self) -> int:
        return len(self._index)

    def blocks(self, host: str) -> BlockedDomain | None:
        """The entry that covers `host` (R3a: the domain itself or any subdomain), or None. Port, case and spelling aside."""
        domain = host if is_plain_host(host) else blocklist_key(host)[-MAX_BLOCKLIST_KEY:]      # no name is longer: its end decides
        while domain not in self._index:
            domain = domain.partition(".")[2]
            if not domain:
                return None
        if not self._rows:      # split at the first hit: most runs never have one
            self._rows = [self._columns[name].split("\n") for name in ("domains", "added", "reasons")]
        domains, added, reasons = self._rows
        row = self._index[domain]
        return BlockedDomain(domains[row], added[row], reasons[row])

    def to_columns(self) -> dict[str, Any]:
        """Plain data for the cache: strings of lines, all equally long, and two scalars."""
        return dict(self._columns)

    @classmethod
    def from_document(cls, document: Any, schema: Any = None) -> Blocklist:
        """The list in a parsed `walsh-research-blocklist/v1` document, validated against its inline schema, else against `schema`.

        R3c, R10: BlocklistRejected where the contract's major is unknown, the document does not hold, or there is no schema.
        """
        contract = document.get("contract") if isinstance(document, dict) else None
        if not isinstance(contract, str) or not CONTRACT_MAJOR_1.fullmatch(contract):
            raise BlocklistRejected(f"contract is {brief_value(contract)}, want {BLOCKLIST_CONTRACT!r}")
        schema = document["schema"] if isinstance(document.get("schema"), dict) else schema
        if not isinstance(schema, dict):
            raise BlocklistRejected("no schema, inline or standalone, to validate it against")
        try:
            validate(document, schema)
        except ValueError as error:
            raise BlocklistRejected(f"{'schema' if isinstance(error, UnsupportedSchema) else 'document'}: {error}") from None
        blocked, updated = document.get("blocked"), document.get("updated")
        if not isinstance(blocked, list):
            raise BlocklistRejected(f"blocked is {brief_value(blocked)}, want an array")
        warnings: list[str] = []
        listed = listed_domains(blocked, warnings)
        columns: dict[str, Any] = {name: "\n".join([
            text.replace("\n", " ") if isinstance(text, str) else "" for text in [entry.get(field) for entry in listed.values()]])
            for name, field in (("domains", "domain"), ("added", "added"), ("reasons", "reason"))}
        keys = "\n".join(listed)
        columns.update(keys=keys, domains=keys if columns["domains"] == keys else columns["domains"], updated=updated if isinstance(updated, str) else "",
                       refresh_seconds=blocklist_refresh_seconds(document.get("refresh", BLOCKLIST_REFRESH), warnings))
        if len(warnings) > MAX_BLOCKLIST_WARNINGS:
            warnings[MAX_BLOCKLIST_WARNINGS - 1:] = [f"and {len(warnings) - MAX_BLOCKLIST_WARNINGS + 1} more entries"]
        return cls(columns, warnings)


# === 8. PACING   R4 R5 R8   spec 9.3, 9.4, 10.3 ==========================
# Owns when the next request may start. Is told the time; never reads it.

class HostPace(NamedTuple):
    """What is known of one host's pace; times are seconds on one clock, -inf where nothing is known."""

    last_at: float = -math.inf          # the latest start, or the latest claim of one
    interval: float = MIN_REQUEST_INTERVAL      # what that start asked to be left after it
    departed_at: float = -math.inf      # when a request last really left
    policy_at: float = -math.inf        # the latest policy document that took no slot
    not_before: float = -math.inf       # Retry-After, back-off, or the hold after the last retry
    why: str = ""                       # who asked for not_before, in a few words


UNSEEN_HOST = HostPace()


def roll() -> float:
    """random.random; the module is heavy, and most runs never back off."""
    import random  # slow to import
    return random.random()


def backoff_delay(attempt: int, retry_after: float | None = None, rand: Callable[[], float] = roll) -> float:
    """Seconds to wait before retry number `attempt` (from 0): `retry_after` where given, else full jitter.  R5, spec 9.4.

    >>> backoff_delay(3, rand=lambda: 1.0), backoff_delay(99, rand=lambda: 0.5), backoff_delay(0, retry_after=0.0)
    (8.0, 30.0, 0.0)
    """
    if retry_after is not None:
        return retry_after
    return rand() * min(BACKOFF_CAP, DEFAULT_BACKOFF_BASE * 2.0 ** min(max(attempt, 0), 32))


def next_start(pace: HostPace, interval: float, follows_policy: bool) -> float:
    """The earliest permitted start on a host; -inf where it may be at once.  R4

    A host's first target follows its first policy documents at once (`follows_policy` false); all else keeps its distance from them too.
    """
    earliest = max(pace.last_at + max(interval, pace.interval), pace.not_before)
    return max(earliest, pace.policy_at + interval) if follows_policy else earliest


def merge_paces(ours: HostPace, theirs: HostPace, now: float) -> HostPace:
    """Two records of one host as one: the later of each time, and of a clock that jumped only what can be believed."""
    theirs = theirs._replace(interval=min(theirs.interval, MAX_CLAIM_SECONDS))
    if theirs.last_at > now + MAX_CLAIM_SECONDS or max(theirs.departed_at, theirs.policy_at) > now + 1.0:      # "just now" is safe
        theirs = theirs._replace(**{name: min(getattr(theirs, name), now) for name in PACE_TIMES[:3]})
    start = max(ours, theirs, key=lambda pace: pace.last_at)
    hold = theirs if ours.not_before < theirs.not_before <= now + MAX_HOLD_SECONDS else ours
    return HostPace(start.last_at, start.interval, max(ours.departed_at, theirs.departed_at), max(ours.policy_at, theirs.policy_at),
                    hold.not_before, hold.why)


def is_fresh(checked_at: float, ttl_seconds: float, now: float) -> bool:
    """R12: younger than its time to live. A time from the future is stale: some clock jumped.

    >>> is_fresh(100.0, 60.0, 159.0), is_fresh(100.0, 60.0, 160.0), is_fresh(200.0, 60.0, 100.0)
    (True, False, False)
    """
    return 0.0 <= now - checked_at < ttl_seconds


# === 9. FRESHNESS   R7 R10 R12   spec 10.2, 11 ===========================
# Owns validators, and what an answer of the network leaves of a policy document.

class Validators(NamedTuple):
    """What a server gave to ask "anything new?" with, byte for byte (as latin-1)."""

    etag: str = ""
    last_modified: str = ""


NO_FILES: dict[str, bytes] = {}


class RobotsState(NamedTuple):
    """What is held of one site's robots.txt, or of its robots2.txt and the files that it chains to. Times are Unix seconds."""

    robots: RobotsTxt | None = None     # the rules; None: there are none to be had
    body: bytes = b""                   # as fetched, for the cache
    status: int = 0                     # of the answer that stands; 0: no HTTP answer
    fetched_at: float = 0.0             # when `body` was last known to be current
    checked_at: float = 0.0             # when the site was last asked
    retry_at: float = 0.0               # not to be asked again before; 0.0: when the copy is stale
    unreachable_since: float = 0.0      # 0.0: it is reachable
    failures: int = 0                   # since then
    no_network: bool = False            # the last attempt got no HTTP answer at all
    trouble: str = ""                   # why it is unreachable, in one line
    validators: Validators = Validators()
    files: dict[str, bytes] = NO_FILES  # of robots2.txt, the site's own first: URL -> body
    robots2: Any = None                 # these files as one


class KnownSource(NamedTuple):
    """What a target's last fetch left: when that was (Unix seconds), and the validators of exactly the URL that answered."""

    at: float = -math.inf
    wire: str = ""
    etag: str = ""
    last_modified: str = ""


class RefreshState(NamedTuple):
    """When the blocklist was last asked about, and what to ask with. Times are Unix seconds, -inf for never."""

    serial: float = 0.0                 # of the generation on the shelf
    checked_at: float = -math.inf       # last known to be current
    failed_at: float = -math.inf        # asked in vain
    retry_at: float = -math.inf         # not to be asked again before
    etag: str = ""
    last_modified: str = ""


def header_value(headers: Sequence[tuple[str, str]], name: str) -> str:
    """The first value of a header, stripped; "" where it is absent."""
    return next((value.strip() for key, value in headers if key == name), "")


def validators_of(headers: Sequence[tuple[str, str]]) -> Validators:
    """R7: the validators of an answer; one that is longer than a header of ours may be is not kept."""
    return Validators(*[value if len(value := header_value(headers, name)) <= MAX_VALIDATOR_LENGTH else ""
                        for name in ("etag", "last-modified")])


def conditional_headers(validators: Validators) -> dict[str, str]:
    """R7: what is replayed; what cannot stand in a header, as a hostile cache may have it, is not.

    >>> conditional_headers(Validators('W/"a"', ""))
    {'If-None-Match': 'W/"a"'}
    """
    return {name: value for name, value in zip(("If-None-Match", "If-Modified-Since"), validators)
            if re.fullmatch(r"[\t\x20-\x7e\x80-\xff]+", value) and len(value) <= MAX_VALIDATOR_LENGTH}


def robots_is_current(state: RobotsState, now: float) -> bool:
    """R2, R12: no need to ask the site: the copy is fresh, or it is too early to ask an unreachable site again."""
    return state.checked_at <= now < (state.retry_at or state.checked_at + ROBOTS_TTL_SECONDS)


def robots_after_answer(held: RobotsState, response: Response, now: float) -> RobotsState:
    """What a final answer to GET /robots.txt leaves behind.  R2, spec 9.1.1"""
    if response.status == 304 and held.robots is not None:      # asked or not: what we hold is what there is
        return RobotsState(held.robots, held.body, 200, now, now, validators=held.validators)
    meaning = robots_meaning(response.status)
    if meaning == "rules":
        body = response.body[:MAX_ROBOTS_BYTES + 1]     # one octet more tells the parser that the file was cut
        return RobotsState(RobotsTxt.parse(body), body, response.status, now, now, validators=validators_of(response.headers))
    if meaning in ("none", "redirect"):         # a redirect that led nowhere: RFC 9309 2.3.1.2
        return RobotsState(status=response.status, fetched_at=now, checked_at=now)
    return robots_after_failure(held, f"robots.txt answered {response.status}", response.status, now)


def robots_after_failure(held: RobotsState, trouble: str, status: int, now: float) -> RobotsState:
    """Unreachable: a copy that is held stays, and the site is asked again soon.  spec 9.1.1, RFC 9309 2.3.1.4"""
    since = held.unreachable_since if 0.0 < held.unreachable_since <= now else now
    return held._replace(status=status, checked_at=now, retry_at=now + POLICY_RETRY_SECONDS, unreachable_since=since, failures=held.failures + 1,
                         no_network=not status, trouble=trouble)


def robots_undefined_for_good(state: RobotsState, now: float) -> bool:
    """RFC 9309 2.3.1.4: after thirty days out of reach a host counts as without rules; two failures a month apart are not that."""
    return bool(state.unreachable_since) and state.failures >= LEAST_FAILURES_FOR_GOOD and now - state.unreachable_since > MAX_UNREACHABLE_SECONDS


# What the shelf keeps of it all, and back: every field is checked, since a cache is hostile too.

def as_number(value: Any) -> float:
    """A finite number, or -inf: a time that is long past."""
    return float(value) if isinstance(value, (int, float)) and -1e12 < value < 1e12 else -math.inf


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def from_entry(defaults: Record, entry: dict[str, Any] | None) -> Record:
    """`defaults` with what an entry holds for them, each in its own type, and no number less than its default."""
    if not entry:
        return defaults
    fields = defaults._asdict()
    for name, default in fields.items():
        value = entry.get(name)
        if isinstance(default, float):
            fields[name] = max(default, as_number(value))
        elif type(value) is type(default):
            fields[name] = value
    return defaults._replace(**fields)


def robots_to_entry(state: RobotsState) -> dict[str, Any]:
    own = {"robots": None, "robots2": None, "validators": None, "body": state.body if state.robots else None}
    return {**state._asdict(), **own, **state.validators._asdict()}


def robots_from_entry(entry: dict[str, Any]) -> RobotsState:
    state = from_entry(RobotsState(validators=from_entry(Validators(), entry)), entry)
    files = {as_text(url): body for url, body in state.files.items() if isinstance(body, bytes)}
    return state._replace(files=files, robots=RobotsTxt.parse(state.body) if isinstance(entry.get("body"), bytes) else None)


def shifted(pace: HostPace, seconds: float) -> HostPace:
    """Between the monotonic clock and the calendar's, which all processes share."""
    return pace._replace(**{name: getattr(pace, name) + seconds for name in PACE_TIMES})


# === 10. READINGS   R9 R6 ================================================
# Owns what a body means once it is here: Markdown, llms.txt, a page's head, robots directives, charsets. Feeds and sitemaps follow.

def first_of_names(table: str) -> dict[str, str]:
    """For each name of a table such as "a b c; d e", the first of its group."""
    return {name: names[0] for names in map(str.split, table.split(";")) for name in names}


# 10a. Markdown: the block structure of CommonMark decides which text is code; the inline structure decides which brackets are links.
ATTRIBUTE = r"""\s+[A-Za-z_:][A-Za-z0-9_.:-]*(?:\s*=\s*(?:[^\s"'=<>`]+|'[^']*'|"[^"]*"))?"""
TAG = rf"<(?:[A-Za-z][A-Za-z0-9-]*(?:{ATTRIBUTE})*\s*/?|/[A-Za-z][A-Za-z0-9-]*\s*)>"
BLOCK_STARTS = r"""            # a line ends in a newline; the first that fits
    (?P<quote>  >[ ]?)
  | (?P<heading>  \#{1,6}(?=[ \n]))
  | (?P<fence>  `{3,}(?=[^`]*$) | ~{3,})
  | (?P<rule>  (?P<mark>[*_-])(?:[ ]*(?P=mark)){2,}[ ]*$)
  | (?P<script>  <(?i:script|pre|style|textarea)(?=[\s>]))
  | (?P<comment>  <!--)
  | (?P<instruction>  <\?)
  | (?P<declaration>  <![A-Za-z])
  | (?P<cdata>  <!\[CDATA\[)
  | (?P<block>  </?(?i:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt
        |fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|menuitem|nav
        |noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul)(?=[\s>]|/>))"""
BLOCK_START = lazy_re(rf"""(?x)[ ]{{0,3}}(?=[>\#`~<*+_0-9-])(?: {BLOCK_STARTS} | (?P<tag>  {TAG}\s*$)
  | (?P<item>  (?:[-+*]|[0-9]{{1,9}}[.)])(?:[ ]{{1,4}}(?=[^ \n])|[ \n])))""")
PARAGRAPH_END = lazy_re(rf"""(?x)[ ]{{0,3}}(?=[>\#`~<*+_=0-9-])(?: (?P<underline>  (?:=+|-+)[ ]*$) | {BLOCK_STARTS}
  | (?P<item>  (?:[-+*]|1[.)])(?:[ ]{{1,4}}(?=[^ \n])|[ ](?=[ ]+[^ \n]))))""")      # an item must not be empty, and must count from 1
HTML_ENDS = {                   # how raw HTML ends (CommonMark 4.6)
    "script": r"</(?i:script|pre|style|textarea)>", "comment": "-->", "instruction": r"\?>", "declaration": ">", "cdata": r"\]\]>",
    "block": "^ *$", "tag": "^ *$",
}
QUOTE = " {0,3}> ?"             # what begins a line that goes on with a block quote; that of a list item is its indentation
TABBED_MARKS = lazy_re(r"[ \t>*+.)0-9#_-]{0,256}")     # tab stops count from the line's start, through the marks

ESCAPE = r"\\[!-/:-@\[-`{-~]"
ENTITY = r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{0,31});"
EMPHASIS = r"\*\**(?![\s*])|\*(?<![\s*]\*)\**|_(?<!\w_)_*(?![\s_])|_(?<![\s_]_)_*(?!\w)"        # what may open it or close it
OUTSIDE_BRACKETS = lazy_re(rf"\[|!\[|{ESCAPE}|``*|<")       # each alternative begins with a letter of its own: `re` skips to it
INSIDE_BRACKETS = lazy_re(rf"\[|!\[|\]|\\\n|{ESCAPE}|``*|<|{ENTITY}|{EMPHASIS}")
ESCAPE_OR_ENTITY = lazy_re(rf"{ESCAPE}|{ENTITY}")
BACKTICK_RUN = lazy_re("`+")
AUTOLINK_OR_HTML = lazy_re(     # within a comment, an instruction or CDATA at most twenty "<": so the time stays linear
    rf"<([A-Za-z][A-Za-z0-9+.-]{{1,31}}:[^<>\x00-\x20]*|[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]+@[A-Za-z0-9.-]+)>|{TAG}|<!---?>"
    r"|<![A-Za-z][^>]*>|<!--(?:[^<]*<){0,20}?[^<]*?-->|<\?(?:[^<]*<){0,20}?[^<]*?\?>|<!\[CDATA\[(?:[^<]*<){0,20}?[^<]*?\]\]>"
)
PLAIN_LINK = lazy_re(r"\[([^\[\]\\`<&*_]*)\]\(([^\x00-\x20\x7f()<\\&]*)\)")
BARE_PART = rf"[^\x00-\x20\x7f()\\]+(?![^\x00-\x20\x7f()\\])|{ESCAPE}|\\(?![!-/:-@\[-`{{-~])"
BARE_DESTINATION = (rf"(?:{BARE_PART}|\(" * MAX_DESTINATION_PARENTHESES + rf"(?:{BARE_PART})*" + r"\))*" * MAX_DESTINATION_PARENTHESES)
LINK_TITLE = r"""(?s:[ \t\n]+(?:"[^"\\]*(?:\\.[^"\\]*){0,999}"|'[^'\\]*(?:\\.[^'\\]*){0,999}'|\([^()\\]*(?:\\.[^()\\]*){0,999}\)))?"""
LINK_LABEL = r"\[((?:[^\[\]\\]|(?s:\\.)){0,999})\]"
POINTED_DESTINATION = r"<([^<>\n\\]*(?:\\.[^<>\n\\]*){0,999})>"
LINK_TAIL = lazy_re(            # 1 or 2: the destination, 3: it is there, 4: the label of a reference, if any
    rf"\([ \t\n]*(?:{POINTED_DESTINATION}|(?!<)({BARE_DESTINATION})){LINK_TITLE}[ \t\n]*(\))|(?:{LINK_LABEL})?")
LINK_DEFINITION = lazy_re(
    rf"(?!\[\s*\]){LINK_LABEL}:[ \t\n]*(?:{POINTED_DESTINATION}|(?!<)(?!\s|$){BARE_DESTINATION}){LINK_TITLE}[ \t]*(?:\n|$)")
DEFINED_LABEL = lazy_re(rf"(?:\A|[\r\n])[ \t>*+.)0-9-]{{0,256}}(?!\[\s*\]){LINK_LABEL}:")
ABSOLUTE_HTTP = lazy_re(r"(?i)https?://[^\s/?#]")


def markdown_links(text: str) -> list[Link]:
    """The inline links `[text](url)` with an absolute http(s) URL, in document order, each URL once. Never raises.

    R9, spec 10.4. CommonMark decides what is a link: images, code, raw HTML, autolinks and references are none.
    The title is plain text; the URL is what the document says, escapes resolved.
    >>> markdown_links("- [The *spec*](https://wal.sh/bot/): read `[me](https://x.test/)`")
    [Link(title='The spec', url='https://wal.sh/bot/')]
    """
    title_by_url: dict[str, str] = {}
    labels = reference_labels(text)
    for _, _, leaf in markdown_leaves(text):
        for title, destination, _ in inline_links(leaf, labels):
            if ABSOLUTE_HTTP.match(destination):
                title_by_url.setdefault(destination, title)
    return [Link(title, url) for url, title in title_by_url.items()]


def reference_labels(text: str) -> set[str]:
    """The labels that link references may use: a reference is no link of R9, but breaks one around it, and may precede its definition."""
    return {link_label_key(definition[1]) for definition in DEFINED_LABEL.finditer(text)} if "]:" in text else set()


def markdown_leaves(text: str) -> Iterator[tuple[int, bool, str]]:
    """(level or 0, is quoted, inline text) of each heading and paragraph, without the reference definitions that it begins with.

    One pass, a line at a time: keep the containers that the line continues, see what it starts, then go on with the paragraph or end it.
    """
    containers: list[str] = []      # of each open one: what a line begins with that goes on with it
    paragraph = bytearray()         # UTF-8: a list of short lines would cost fifty bytes for each
    raw_end = ""                    # inside a code fence or raw HTML: what ends it
    octets = io.BytesIO((text + "\n\n").encode("utf-8", "surrogatepass"))      # the empty line ends the last paragraph
    for line in io.TextIOWrapper(octets, "utf-8", "surrogatepass"):       # only LF, CR and CRLF end one; a StringIO takes four times the memory
        if "\t" in line:
            line = TABBED_MARKS.sub(lambda marks: marks[0].expandtabs(4), line, count=1)
        kept, rest = 0, line
        while kept < len(containers) and (mark := re.match(containers[kept], rest)):
            kept, rest = kept + 1, rest[mark.end():]
        goes_on = kept == len(containers)
        if raw_end and goes_on:
            raw_end = "" if re.search(raw_end, rest) else raw_end
            continue
        raw_end = ""
        opened: list[str] = []
        starts = PARAGRAPH_END if paragraph and goes_on else BLOCK_START
        while (start := starts.match(rest, 0, MAX_TAG_CHARS)) and start.lastgroup in ("quote", "item"):
            if kept + len(opened) == MAX_MARKDOWN_NESTING:
                break
            rest = rest[start.end():]
            holds_empty = r"|[ \t\n]*$" if rest.strip(" \t\n") else ""     # an empty line does not continue an item that began with one
            opened.append(QUOTE if start["quote"] else f" {{{start.end()}}}{holds_empty}")
            starts = BLOCK_START
        kind = start.lastgroup if start else ""
        if kind == "tag" and paragraph and not opened:
            kind = ""

        blank = not rest.strip(" \t\n")
        if paragraph and (kind or opened or blank):
            leaf, end = paragraph[:-1].decode("utf-8", "surrogatepass"), 0
            paragraph.clear()
            while "]:" in leaf and (definition := LINK_DEFINITION.match(leaf, end, end + MAX_URL_LENGTH)):
                end = definition.end()
            if leaf[end:]:
                yield (1 + ("-" in rest) if kind == "underline" else 0), QUOTE in containers, leaf[end:]
        if not paragraph:                       # which goes on even without its containers' marks
            containers[kept:] = opened
        if start and kind == "heading":
            yield len(start["heading"]), QUOTE in containers, re.sub("(?:^| )#+$", "", rest[start.end():].strip(" \n"))
        elif start and kind == "fence":
            raw_end = rf"^ {{0,3}}{start['fence']}+ *$"
        elif kind in HTML_ENDS:
            raw_end = "" if re.search(HTML_ENDS[kind], rest) else HTML_ENDS[kind]
        elif not (kind or blank) and (paragraph or not rest.startswith("    ")):
            paragraph += rest.lstrip(" ").encode("utf-8", "surrogatepass")


def link_label_key(label: str) -> str:
    return " ".join(label.casefold().split())


def unescaped(text: str) -> str:
    """Character references resolved."""
    if "&" not in text:
        return text
    from html import unescape  # two thousand names: read only where a document uses one

    return unescape(text)


def inline_links(text: str, labels: set[str]) -> Iterator[tuple[str, str, str]]:
    """(title, destination, note) of the inline links of a leaf; the note is what follows a link that the leaf begins with.

    One scan; brackets are a stack, as in the algorithm that CommonMark's appendix describes.
    """
    found: list[tuple[str, str, str]] = []      # held back while a bracket is open: what stands in an image's text is no link
    openers: list[tuple[int, bool, int, int]] = []      # where, is an image, pieces before it, links before it
    pieces: list[str] = []              # plain text since the outermost open bracket
    emphasis: dict[str, int] = {}       # a run of * or _ that may open emphasis: the index of its latest piece
    last_runs: dict[str, int] = {}      # a run of backticks: where it is last
    newest = -1                         # where the latest of the openers was
    dead = 0                            # openers that a link has closed inside of: links hold no links
    at, last_tail = 0, text.rfind("](")
    while at <= last_tail and (mark := (INSIDE_BRACKETS if openers else OUTSIDE_BRACKETS).search(text, at)):
        piece, start = mark[0], mark.start()
        kind = piece[0]
        if openers and start > at:
            pieces.append(text[at:start])
        at = mark.end()
        if kind in "[!":
            if not openers:
                if plain := PLAIN_LINK.match(text, start):      # nearly all links: no mark inside, nothing open outside
                    at = plain.end()
                    yield " ".join(plain[1].split()), plain[2], text[at:] if start == 0 else ""
                    continue
                pieces.clear()
                dead = 0
            openers.append((start, kind == "!", len(pieces), len(found)))
            newest = start
        elif kind == "]":
            opener, is_image, pieces_before, links_before = openers.pop()
            is_dead = len(openers) < dead and not is_image
            dead = min(dead, len(openers))
            tail = None if is_dead else LINK_TAIL.match(text, at, at + MAX_URL_LENGTH)
            label = tail and tail[4] or (text[opener + 1:at - 1] if opener == newest else "")       # one that holds brackets is none
            if tail and (tail[3] or labels and link_label_key(label) in labels):
                piece, at = "".join(pieces[pieces_before + 1:]), tail.end()
                del pieces[pieces_before:]
                if is_image:
                    del found[links_before:]
                else:
                    dead = len(openers)
                    destination = ESCAPE_OR_ENTITY.sub(         # "" of a reference
                        lambda mark: unescaped(mark[0].removeprefix("\\")), tail[1] or tail[2] or "")
                    found.append((" ".join(piece.split()), destination, text[at:] if opener == 0 else ""))
        elif kind == "`":
            last_runs = last_runs or {run[0]: run.start() for run in BACKTICK_RUN.finditer(text)}      # no search is in vain
            if last_runs.get(piece, -1) >= at:
                closing = next(run for run in BACKTICK_RUN.finditer(text, at) if run[0] == piece)
                piece, at = text[at:closing.start()], closing.end()
        elif kind == "<":
            if tag := AUTOLINK_OR_HTML.match(text, start, start + MAX_TAG_CHARS):
                piece, at = tag[1] or "", tag.end()
        elif kind in "*_":
            opened = emphasis.pop(piece, -1)
            if openers[-1][2] < opened < len(pieces) and not text[start - 1].isspace():
                piece = pieces[opened] = ""
            elif not text[at:at + 1].isspace():
                emphasis[piece] = len(pieces)
        elif kind in "\\&":
            piece = unescaped(piece.removeprefix("\\"))
        if openers:
            pieces.append(piece)
            if len(pieces) > MAX_LINK_TEXT_TOKENS:
                openers.clear()
        elif found:
            yield from found
            found.clear()
    yield from found


# 10b. llms.txt
def parse_llms_txt(text: str, base_url: str = "") -> LlmsTxt:
    """An llms.txt: its H1, its quoted summary, and its links, each with the H2 it stands under ("" before the first). Never raises.

    Relative URLs are resolved against `base_url`; what is no http(s) URL then is left out. A note is the text behind `[title](url):`.
    >>> parse_llms_txt("# Site\\n> Short.\\n## Docs\\n- [A](/a.md): first", "https://x.test/llms.txt").links
    [LlmsLink(section='Docs', title='A', url='https://x.test/a.md', note='first')]
    """
    title = summary = section = ""
    links: list[LlmsLink] = []
    labels = reference_labels(text)
    for level, quoted, leaf in markdown_leaves(text.removeprefix("\ufeff")):
        words = " ".join(leaf.split())
        if level == 1:
            title = title or words
        elif level == 2:
            section = words
        elif quoted:
            summary = summary or words
        for name, destination, note in inline_links(leaf, labels):
            if url := http_url(base_url, destination):
                links.append(LlmsLink(section, name, url, " ".join(note.lstrip(" :\n").split())))
    return LlmsTxt(title, summary, links)


def absolute_url(base: str, reference: str) -> str:
    """The absolute URL; as it stands where there is no base; "" where it is none, so that one bad URL does not lose the rest."""
    reference = reference.strip()
    if len(reference) > MAX_FEED_TEXT:
        return ""
    if not base or not reference or reference.startswith("http") and PLAIN_REFERENCE.fullmatch(reference) and "/." not in reference:
        return one_line(reference)      # nine in ten: resolving is slow
    with suppress(ValueError):
        return resolve_url(base, reference)
    return ""


def http_url(base: str, reference: str) -> str:
    """The same where it is http(s), else ""."""
    url = absolute_url(base, reference)
    return url if ABSOLUTE_HTTP.match(url) else ""


def one_line(text: str) -> str:
    return (text if text.isprintable() and "  " not in text else UNPRINTABLE_RUN.sub(" ", text)).strip(" ")


# 10c. A page's head. A scanner of our own: html.parser's time and tokens on hostile pages differ between patch releases.
HEAD_VALUES = {"html": "lang", "title": "<text>", "meta": "content", "link": "href", "base": "href"}      # the attribute that tells
RAW_TEXT_ELEMENTS = "title|script|style|noscript|template|noframes"
HEAD_MARK = lazy_re(            # anything else is the body
    rf"\s*<(?:(?i:(html|head|meta|link|base|basefont|bgsound|{RAW_TEXT_ELEMENTS}|/(?!(?:head|body|html)[\s/>])[a-z][^\s/>]*)(?=[\s/>]))"
    r"|!--(?s:.*?)-->|(?:!(?!--)|\?)[^>]*>)")
HTML_ATTRIBUTE = lazy_re(r"""[\s/=]*(?:>|([^\s/>=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)?))?)""")     # or the tag's end


def page_metadata(html: str | bytes, base_url: str = "") -> PageMetadata:
    """What a page says of itself in its <head>; what stands in the body is ignored. Never raises.

    R9: generic, no selectors. URLs are absolute (`base_url`, then <base href>); of two values the first holds.
    <meta name="walsh-research"> replaces <meta name="robots">.
    >>> page_metadata("<html lang=en><title>A &amp; B</title><link rel=canonical href=/a><p>", "https://x.test/").canonical
    'https://x.test/a'
    """
    text = decode_body(html, "text/html") if isinstance(html, bytes) else html
    said: dict[str, list[str]] = collections.defaultdict(list)
    feeds: list[tuple[str, str]] = []
    for name, attributes in head_elements(text[:MAX_HEAD_CHARS].removeprefix("\ufeff")):
        if value := attributes.get(HEAD_VALUES.get(name, ""), ""):
            for label in (attributes.get("rel") or attributes.get("name", "")).lower().split() or ("",):
                said[f"{name} {label}"].append(value)
                if label == "alternate" and media_kind(attributes.get("type", "")) == "feed":
                    feeds.append((attributes.get("title", ""), value))
    title, description, canonical, language, base = ((*said[name], "")[0] for name in (
        "title ", "meta description", "link canonical", "html ", "base "))
    base = http_url(base_url, base) or base_url
    directives = robots_tag_directives(",".join(said["meta " + UA_TOKEN.lower()] or said["meta robots"]))
    advertised = (Link(title, http_url(base, href)) for title, href in feeds[:MAX_HEAD_LISTED])
    return PageMetadata(title, description, http_url(base, canonical), language,
                        tuple(dict.fromkeys(directive for _, directive in directives))[:MAX_HEAD_LISTED],
                        tuple(feed for feed in advertised if feed.url))


def head_elements(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(name, attributes) of each start tag until the head is over: its end tag, or the first thing that cannot stand in it.

    The text of a raw text element such as <title> is its attribute "<text>".
    """
    at = 0
    while mark := HEAD_MARK.match(text, at):
        name, at = (mark[1] or "").lower(), mark.end()
        if not name:
            continue
        attributes: dict[str, str] = {}
        while attribute := HTML_ATTRIBUTE.match(text, at):
            at = attribute.end()
            if not attribute[1]:
                break
            attributes.setdefault(attribute[1].lower(), html_text(attribute[2] or attribute[3] or attribute[4] or ""))
        else:
            return
        if name in RAW_TEXT_ELEMENTS.split("|"):
            close = re.compile(rf"(?i)</{name}(?=[\s/>])").search(text, at)
            if not close:
                return
            attributes["<text>"], at = html_text(text[at:close.start()]), close.start()
        yield name, attributes


def html_text(value: str) -> str:
    """One line, character references resolved, no longer than a head's value may be."""
    return one_line(unescaped(value[:MAX_HEAD_VALUE_CHARS]))


# 10d. Directives that bind what is done with a page
ROBOTS_WARNINGS = {
    "noindex": "must not be indexed", "none": "must not be indexed, and its links must not be followed",
    "nofollow": "its links must not be followed", "noimageindex": "its images must not be indexed",
    "noarchive": "no copy of it must be kept or shown", "nocache": "no copy of it must be kept or shown",
    "nosnippet": "no extract of it must be shown", "notranslate": "no translation of it must be offered",
    "noai": "must not be used for machine learning", "noimageai": "its images must not be used for machine learning",
}
ROBOTS_DIRECTIVE = lazy_re(r"(?:[^,]*unavailable_after\s*:\s*[a-z]+\s*,)?[^,]+")       # RFC 1123 puts a comma behind the weekday
ROBOTS_AGENT = lazy_re(rf"(?!(?:unavailable_after|max-[a-z]+-?[a-z]*|{'|'.join(ROBOTS_WARNINGS)})\s*:)([^\s:,]+)\s*:\s*")


def robots_tag_directives(value: str) -> Iterator[tuple[str, str]]:
    """(agent, directive) pairs of an X-Robots-Tag or of a robots <meta>, lower-case; an agent speaks for all that follows, "" is everybody.

    >>> list(robots_tag_directives("noarchive, otherbot: noindex, unavailable_after: Wed, 25 Jun 2030 15:00:00 GMT"))
    [('', 'noarchive'), ('otherbot', 'noindex'), ('otherbot', 'unavailable_after: wed, 25 jun 2030 15:00:00 gmt')]
    """
    agent = ""
    for item in ROBOTS_DIRECTIVE.findall(value[:MAX_HEAD_VALUE_CHARS].lower()):
        directive = " ".join(item.split())
        if ":" in directive and (prefix := ROBOTS_AGENT.match(directive)):
            agent = "" if prefix[1] == "*" else prefix[1].split("/")[0]
            directive = directive[prefix.end():]
        yield agent, ": ".join(map(str.strip, directive.split(":", 1)))


def robots_directives(headers: Iterable[tuple[str, str]], metadata: PageMetadata | None, now: float | None) -> tuple[list[str], list[str]]:
    """(the directives that bind us, once each in order; a line of warning for each that forbids something).

    X-Robots-Tag, then the page's own. What a header addresses to us replaces what it says to all.
    `now` in Unix seconds, or None where it is not known whether an `unavailable_after` has passed.
    """
    by_agent: dict[str, list[str]] = collections.defaultdict(list)
    for header, value in headers:
        for agent, directive in robots_tag_directives(value) if header.lower() == "x-robots-tag" else ():
            by_agent[agent].append(directive)
    own = (by_agent[UA_TOKEN.lower()] or by_agent[""]) + list(metadata.robots if metadata else ())
    directives = [directive for directive in dict.fromkeys(own) if directive and directive.isprintable()][:MAX_HEAD_LISTED]
    warnings = []
    for directive in directives:
        name, _, date = directive.partition(": ")
        warning = ROBOTS_WARNINGS.get(directive)
        if name == "unavailable_after":
            moment = date_moment(date)
            if moment is None:
                warning = "not a date, want one as in 25 Jun 2030 15:00:00 GMT"
            elif now is not None and moment <= utc_moment(now):
                warning = "has passed, the page should no longer be used"
        if warning:
            warnings.append(f"{directive}: {warning}")
    return directives, warnings


# 10e. What a body is, and in which letters
# A codec, and Python's names for what the web means by it (its latin-1 is windows-1252). None that does more: zlib, punycode, utf-7.
# UTF-16 and UTF-32 are seen, not believed.
CODECS = """
    utf-8 utf_8 unicode_1_1_utf_8; gb18030 gb2312 gb_2312_80 csgb2312 gbk; big5hkscs big5 cn_big5; cp1252 ascii latin_1 iso88591;
    cp1254 iso8859_9;
    cp874 tis_620 iso8859_11; cp932 shift_jis cp31j; cp949 euc_kr ksc_5601; koi8_r koi8; koi8_u koi8_ru; mac_roman mac;
    iso8859_8 iso_8859_8_i;
    cp866; cp1250; cp1251; cp1253; cp1255; cp1256; cp1257; cp1258; iso8859_2; iso8859_3; iso8859_4; iso8859_5; iso8859_6; iso8859_7;
    iso8859_10; iso8859_13; iso8859_14; iso8859_15; iso8859_16; mac_cyrillic; euc_jp; iso2022_jp"""
CODEC_BY_NAME = first_of_names(CODECS)
BYTE_ORDER = lazy_re(           # UTF-32's little-endian mark begins with UTF-16's; a NUL among the first two says it without a mark
    rb"(?s)(?P<utf_8>\xef\xbb\xbf)|(?P<utf_32_le>\xff\xfe\0\0)|(?P<utf_32_be>\0\0\xfe\xff)|(?P<utf_16_le>\xff\xfe|.\0)|(?P<utf_16_be>\xfe\xff|\0.)")
DECLARED_IN_XML = rb"""\A\s*<\?xml[^>]{0,200}?\sencoding"""
DECLARED_IN_HTML = rb"""(?i)<meta\s[^>]{0,256}?charset"""
DECLARED_CHARSET = rb"""\s*=\s*["']?\s*([\w.:-]{1,40})"""
CHARSET_PARAMETER = lazy_re(r"""(?i);\s*charset\s*=\s*["']?([^\s"';,]*)""")
UNREAD_TYPES = (                # R6: sub-resources, archives, executables, by kind or subtype; PDF is a document and is read
    " image font audio video "
    "css javascript ecmascript wasm binary octet-stream vnd.ms-fontobject zip zip-compressed gzip bzip bzip2 xz zstd tar gtar "
    "7z-compressed rar vnd.rar rar-compressed java-archive iso9660-image apple-diskimage debian-package vnd.debian.binary-package rpm "
    "redhat-package-manager vnd.android.package-archive msdownload msdos-program msi vnd.microsoft.portable-executable executable "
    "sharedlib mach-binary elf shockwave-flash ogg mp4 mpegurl vnd.apple.mpegurl dash+xml ")
MEDIA_KIND = lazy_re(           # spec 10.4: "the Content-Type contains markdown"
    r".*(?P<markdown>markdown)|(?P<html>text/html|application/xhtml\+xml)$"
    r"|(?P<feed>(?:application|text)/(?:(?:rss|atom)\+?xml|feed\+json))$|.*[/+](?:(?P<json>json)|(?P<xml>xml))$|(?P<text>text/)|")


def media_type_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def content_type_of(headers: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """(media type, charset) of the first Content-Type, lower-case; "" where it names none."""
    value = next((value for name, value in headers if name.lower() == "content-type"), "")
    charset = CHARSET_PARAMETER.search(value)
    return media_type_of(value), charset[1].lower() if charset else ""


def charset_codec(label: str) -> str | None:
    """The Python codec for a charset's name on the web, from a list of those that only map letters; None for any other.

    >>> charset_codec("GB2312"), charset_codec("latin1"), charset_codec("zlib")
    ('gb18030', 'cp1252', None)
    """
    from encodings.aliases import aliases

    name = re.sub("[^a-z0-9]+", "_", label[:64].lower().strip(" \t\r\n\"'")).removeprefix("x_").replace("windows_", "cp")
    return CODEC_BY_NAME.get(name) or CODEC_BY_NAME.get(aliases.get(name, ""))


def body_codecs(body: bytes, content_type: str) -> list[str]:
    """The codecs to try: by the byte order mark or NULs alone, else by the header, the body's own declaration, UTF-8 (RFC 7303 3)."""
    if (order := BYTE_ORDER.match(body)) and order.lastgroup:
        return [order.lastgroup]
    declared = re.search((DECLARED_IN_HTML if media_kind(content_type) == "html" else DECLARED_IN_XML) + DECLARED_CHARSET, body[:1024])
    labels = content_type_of([("content-type", content_type)])[1], declared[1].decode("latin-1") if declared else "", "utf-8"
    return list(filter(None, map(charset_codec, labels)))


def decode_body(body: bytes, content_type_header: str) -> str:
    """The text of a body: byte order mark, charset of the header, <meta charset> (HTML), then UTF-8 with U+FFFD. Never raises."""
    return body.decode(body_codecs(body, content_type_header)[0], "replace").removeprefix("\ufeff")


def is_unread_type(media_type: str) -> bool:
    """R6: is this a kind of body that is never read (image, script, stylesheet, font, sound, film, archive, binary)?"""
    kind, _, subtype = media_type_of(media_type).partition("/")
    subtype = subtype.removeprefix("x-")
    return f" {kind} " in UNREAD_TYPES or f" {subtype} " in UNREAD_TYPES or subtype.startswith("font-")



def media_kind(media_type: str) -> str:
    """Which reading fits a media type: "markdown", "html", "feed", "json", "xml", "text" or "other"."""
    return next(MEDIA_KIND.finditer(media_type_of(media_type))).lastgroup or "other"



# --- Feeds and sitemaps   R9: titles, links, ids and dates; never the articles ---
# Both are XML that lists entries, so one walker serves both: a table says which roots, entries and fields there are.

XML_PREFIXES = {                # what stands before an element's name for us: by its namespace, or by a prefix that nobody declared
    **dict.fromkeys(first_of_names("""http://www.w3.org/2005/atom http://purl.org/atom/ns# http://purl.org/rss/1.0/ http://my.netscape.com/rdf/simple/0.9/
        http://channel.netscape.com/rdf/simple/0.9/ http://backend.userland.com/rss2 atom atom10 a10 rss"""), ""),
    "http://purl.org/dc/elements/1.1/": "dc:", "http://purl.org/dc/terms/": "dcterms:",
}
FEED_ROOTS = {**dict.fromkeys(("rss", "rdf", "channel"), ("rss", "item")), "feed": ("atom", "entry")}     # kind, entry
SITEMAP_ROOTS = {"urlset": ("urlset", "url"), "sitemapindex": ("index", "sitemap")}
ENTRY_FIELDS = first_of_names(  # a field, and the elements that fill it besides its own
    "title; dc:title; link loc; id guid; published pubdate issued dcterms:issued; dc:date; created dcterms:created; "
    "updated modified dcterms:modified; lastmod; channel")
JSON_FIELDS = first_of_names("title; link url home_page_url; alternate external_url; id; published date_published; updated date_modified")
# Which field tells most. A link without rel is "alternate" (RFC 4287 4.2.7.2).
FEED_TITLES = ("title", "dc:title")
FEED_LINKS = ("link", "alternate", "alternate of another type", "permalink", "self", "related", "via", "rdf:about")
FEED_IDS = ("id", "opaque id", "rdf:about")
FEED_DATES = ("published", "dc:date", "created", "updated")
PLAIN_REFERENCE = lazy_re(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9_.~!$&'()*+,;=:@%?/-]*")       # nothing to resolve but dots
UNPRINTABLE_RUN = lazy_re(r"[\x00-\x20\x7f-\x9f]+")

# What a decision does not need is compiled, and kept by re, where a document is read: it would be a third of the import.
PROLOG_TOKEN = (                # 1: the root
    rb"(?is)\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<([a-z_:\x80-\xff])")
XML_SLIP = (                    # 1: what may hold anything; else a numeric reference, a bare & or <
    rb"(?s)(<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z))|&#(?:[0-9]{1,7}|[xX][0-9a-fA-F]{1,6});"
    rb"|&(?![A-Za-z][A-Za-z0-9]{0,31};)|<(?![A-Za-z_:/!?\x80-\xff])")
XML_FORBIDDEN = b"\0\1\2\3\4\5\6\7\10\13\14\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37"
BREAK_TAG = r"(?i)</?(?:br|p|div|li|h[1-6])\b[^<>]*>"
TITLE_TAGS = {                  # by the type of the title; in RSS only known tags are some: `List<String>` is a title
    "rss": r"(?i)</?(?:a|abbr|acronym|b|big|cite|code|del|em|font|i|img|ins|kbd|mark|q|s|samp|small|span|strike|strong"
           r"|sub|sup|tt|u|var|wbr)\b[^<>]*>",
    "html": r"(?s)</?[A-Za-z][^<>]*>|<!--.*?(?:-->|\Z)",    # RFC 4287 3.1.1; any other type is text, and has no markup
}

ZONES = (                       # hours: RFC 822 5.1, and names that publishers use; any other name counts as UTC (RFC 5322 4.3)
    "-12 m; -10 hst; -9 akst; -8 pst pt akdt; -7 mst pdt mt; -6 cst mdt ct; -5 est cdt et; -4 ast edt; -3 adt; -1 a; "
    "1 n bst cet met west; 2 cest mest eet; 3 eest msk; 9 jst kst; 10 aest; 11 aedt; 12 y nzst; 13 nzdt")
ZONE_HOURS = first_of_names(ZONES)
DAY, MONTH = r"(?P<day>\d\d?)(?:st|nd|rd|th)?", "(?P<month>[a-z]{3,9})"
DATE = (                        # one of the days below, a time, a zone
    r"(?a)(?:[a-z]+[.,]?\s*)??%s(?:[\s,t]+(?P<hour>\d\d?):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,]\d+)?)?)?"
    r"\s*(?:(?:gmt|utc?)?(?P<sign>[+-])(?P<zone_hours>\d\d?):?(?P<zone_minutes>\d\d)?(?:\s*\([\w\s]*\))?|(?P<zone>[a-z]{1,5}))?(?:\s+\d{4})?")
DAYS = (
    r"(?P<year>\d{4})(?:[-/]?(?P<month>\d\d)(?:[-/]?(?P<day>\d\d))?)?",     # W3C-DTF, RFC 3339
    rf"{DAY}[\s-]+{MONTH}[.,\s-]+(?P<year>\d{{4}}|\d\d)",                  # RFC 822
    rf"{MONTH}\.?\s+{DAY}[\s,]+(?P<year>\d{{4}})",                         # January 1st, 2004
    rf"{MONTH}\.?\s+{DAY}(?=.*\s(?P<year>\d{{4}})\Z)",                     # asctime
)
UTC_DATE = (                    # nine in ten, in days that every month has: RFC 822, or W3C-DTF as it is wanted
    r"(0[1-9]|1[0-9]|2[0-8]) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([12][0-9]{3}) ((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]) "
    r"(?:GMT|[+-]0000)|[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z")


def date_moment(text: str) -> datetime | None:
    """A date of RFC 822, W3C-DTF or a common misspelling, in UTC; it is so where it names no zone. None where it is no date."""
    from datetime import (  # only where a feed, or a robots directive, has one
        datetime,
        timedelta,
    )

    text = text.strip()[:MAX_DATE_LENGTH].lower()
    found = next(filter(None, (re.fullmatch(DATE % day, text) for day in DAYS)), None)
    if not found:
        return None
    part = found.groupdict("")
    year, day, hour, minute, second = (int(part[name] or name == "day") for name in ("year", "day", "hour", "minute", "second"))
    if len(part["year"]) == 2:
        year += 2000 if year < 50 else 1900         # RFC 5322 4.3
    month, sign = part["month"] or "1", part["sign"]
    zone_hours = sign + part["zone_hours"] if sign else ZONE_HOURS.get(part["zone"], "0")
    offset = timedelta(hours=int(zone_hours), minutes=int(sign + (part["zone_minutes"] or "0")))
    try:
        month_number = int(month) if month.isdigit() else MONTH_NAMES.index(month[:3]) + 1
        return datetime(year, month_number, day, hour, minute, min(second, 59)) - offset        # :60 leaps
    except (ValueError, OverflowError):
        return None


def feed_date(text: str) -> str | None:
    """The same as ISO 8601 in UTC.

    >>> feed_date("Thu, 01 Jan 2004 19:48:21 EST")
    '2004-01-02T00:48:21Z'
    """
    text = text.strip()
    if simple := re.fullmatch(UTC_DATE, text[5 * (text[3:5] == ", "):]):
        day, month, year, time_of_day = simple.groups()
        return f"{year}-{MONTH_NAMES.index(month.lower()) + 1:02}-{day}T{time_of_day}Z" if month else text
    moment = date_moment(text)
    return f"{moment.isoformat()}Z" if moment else None


def feed_title(text: str, form: str) -> str:
    """One line of text, whose markup is that of `form`: "rss", "html" or none."""
    text = text[:MAX_FEED_TEXT]
    if form in TITLE_TAGS:
        if "<" in text:
            text = re.sub(TITLE_TAGS[form], "", re.sub(BREAK_TAG, " ", text))
        text = unescaped(text)
    return one_line(text)


def first_field(fields: dict[str, str], names: Sequence[str]) -> str:
    return next(filter(None, map(fields.get, names)), "")


def feed_item(fields: dict[str, str], kind: str) -> FeedItem:
    if ABSOLUTE_HTTP.match(fields.get("id", "").lstrip()):
        fields["permalink"] = fields["id"]
    title = feed_title(first_field(fields, FEED_TITLES), "rss" if kind == "rss" else fields.get("type", ""))
    published = next(filter(None, map(feed_date, filter(None, map(fields.get, FEED_DATES)))), None)
    url = absolute_url(fields["base"], first_field(fields, FEED_LINKS))
    return FeedItem(title, url, one_line(first_field(fields, FEED_IDS)[:MAX_FEED_TEXT]), published)


def gathered(entries: Iterable[Any], room: int) -> tuple[list[Any], str]:
    """The entries that name anything, and what broke them off. `room`: characters of URLs, since a long base makes short links long."""
    kept: list[Any] = []
    try:
        for entry in entries:
            room -= len(entry.url)
            if room < 0 or len(kept) == MAX_LISTED_ENTRIES:
                return kept, f"cut after {len(kept)} entries"
            if any(entry):
                kept.append(entry)
    except ValueError as error:
        return kept, str(error)
    return kept, ""


# What a document is written in, and how it is mended.
def feed_document(body: bytes, content_type: str) -> bytes:
    """The body as UTF-8, without what may stand before its first character."""
    codecs = body_codecs(body, content_type)
    text = next((text for text in (body.decode(codec, "replace") for codec in codecs) if "\ufffd" not in text), "")
    if not text:            # a few torn characters in UTF-8, or the Latin text of an editor that never heard of it
        latin = codecs[0] == "utf-8" and not re.search(rb"[\xc2-\xf4][\x80-\xbf]", body)
        text = body.decode("cp1252" if latin else codecs[0], "replace")
    return text.lstrip("\ufeff \t\r\n\0").encode()


def xml_without_prolog(document: bytes) -> bytes:
    """The root element and what follows it, on the lines where they were. Without a DOCTYPE there is no entity to expand, by any expat."""
    root = next((token.start() for token in re.finditer(PROLOG_TOKEN, document) if token[1]), len(document))
    return b"\n" * document.count(b"\n", 0, root) + document[root:]


def repaired_xml(document: bytes) -> bytes:
    """Bare & and <, impossible references and control characters mended: the slips that need not lose the rest of a document."""
    from html import escape
    repaired, end = bytearray(), 0      # not sub(): joining a million pieces takes 80 bytes for each
    for slip in re.finditer(XML_SLIP, document):
        if not slip[1]:
            repaired += document[end:slip.start()] + escape(unescaped(slip[0].decode())).encode()
            end = slip.end()
    repaired += document[end:]
    return bytes(repaired.translate(None, XML_FORBIDDEN).replace(b"\xef\xbf\xbe", b"").replace(b"\xef\xbf\xbf", b""))


def in_pieces(stream: Any) -> Iterator[bytes]:
    return iter(lambda: stream.read1(XML_PIECE_BYTES), b"")


def xml_entries(pieces: Iterable[bytes], roots: dict[str, tuple[str, str]], head: dict[str, str], base: str) -> Iterator[dict[str, str]]:
    """The fields of each entry of a document in UTF-8, as soon as it is complete; "base" is among them.

    `head` gets the "kind", and the fields of the whole. ValueError, with the position, where the document breaks off or passes a bound.
    """
    from xml.parsers import expat  # C, and nothing else of the xml package

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.UseForeignDTD(True)          # &nbsp; without a DTD is then skipped, not an error
    complete: list[dict[str, str]] = []
    fields = head                       # or those of the entry that is open
    prefixes, names = dict(XML_PREFIXES), {}        # type: dict[str, str], dict[str, str]
    bases = [base]                      # and those of the open containers: root, channel, entry
    depth = 0                           # of the open element; a container holds what is as deep as there are bases
    entry = field = ""                  # what an entry is called here; the field that is open
    text: list[str] = []

    def stop(reason: str) -> None:
        raise ValueError(f"{reason}: line {parser.CurrentLineNumber}")

    def based(attributes: dict[str, str]) -> str:
        base = absolute_url(bases[-1], attributes["xml:base"]) if "xml:base" in attributes else ""
        return base if 0 < len(base) <= MAX_BASE_LENGTH else bases[-1]

    def start(element: str, attributes: dict[str, str]) -> None:
        nonlocal depth, entry, fields, field
        depth += 1
        if depth > MAX_XML_DEPTH:
            stop(f"elements nested deeper than {MAX_XML_DEPTH}")
        if depth != len(bases):         # inside a field, an image, a source, somebody's extension
            return
        name = names.get(element)
        if name is None:
            prefix, colon, name = element.lower().rpartition(":")
            if depth == 1:              # whatever its namespace
                if name not in roots:
                    stop(f"found <{element[:40]}>, want {' or '.join(roots)}")
                prefixes[prefix] = ""
                head["kind"], entry = roots[name]
                name = "channel"
            name = prefixes.get(prefix, prefix + colon) + name
            name = names[element] = "entry" if name == entry else ENTRY_FIELDS.get(name, "")
        if fields is head and name in ("entry", "channel"):
            if name == "entry":
                fields = {"rdf:about": attributes.get("rdf:about", "")}
            fields["base"] = based(attributes)
            bases.append(fields["base"])
            for attribute, value in attributes.items():
                if attribute.startswith("xmlns:") and value.lower() in XML_PREFIXES:
                    prefixes[attribute[6:].lower()] = XML_PREFIXES[value.lower()]
                    names.clear()
        elif name == "link" and "href" in attributes:
            rel = attributes.get("rel", "").strip().lower().rpartition("/")[2] or "alternate"       # the registry's URI form, too
            if rel == "alternate" and "html" not in attributes.get("type", "html").lower():
                rel = "alternate of another type"
            if rel in FEED_LINKS:
                href = attributes["href"]       # resolved late: a long base makes short links long
                fields.setdefault(rel, absolute_url(based(attributes), href) if "xml:base" in attributes else href)
        elif name:
            field = name
            if name == "title":
                fields.setdefault("type", attributes.get("type", "").lower().removeprefix("text/"))     # of Atom 0.3
            elif name == "id" and attributes.get("isPermaLink", "true").strip().lower() != "true":
                field = "opaque id"
            parser.CharacterDataHandler = text.append

    def end(element: str) -> None:
        nonlocal depth, fields, field
        if depth < len(bases):          # a container
            bases.pop()
            if fields is not head:
                complete.append(fields)
                fields = head
        elif field and depth == len(bases):
            parser.CharacterDataHandler = None
            fields[field] = fields.get(field) or "".join(text)
            text.clear()
            field = ""
        depth -= 1

    def skipped(entity: str, is_parameter: bool) -> None:
        if field and not is_parameter:
            text.append(unescaped(f"&{entity};"))

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.SkippedEntityHandler, parser.EntityDeclHandler = skipped, lambda *entity: stop("a document that declares entities")
    parser.AttlistDeclHandler = lambda *attribute: stop("a document that declares attributes")     # each tag would have all of them
    given = 0
    for piece in itertools.chain(filter(None, pieces), (b"",)):
        try:
            parser.Parse(piece, not piece)
            given += len(piece)
            if len(parser.intern) > MAX_XML_NAMES:
                stop(f"more than {MAX_XML_NAMES} different names")
            if piece and given - parser.CurrentByteIndex > MAX_XML_TOKEN_BYTES:
                stop(f"a tag of more than {MAX_XML_TOKEN_BYTES} bytes")
        except expat.ExpatError as error:
            raise ValueError(str(error)) from None
        finally:
            yield from complete         # those before a break, too
            complete.clear()
        text[:] = ["".join(text)[:XML_PIECE_BYTES]]


def json_entries(document: bytes, head: dict[str, str], base: str) -> Iterator[dict[str, str]]:
    """As `xml_entries`, of a JSON Feed."""
    if len(document) > MAX_JSON_FEED_BYTES:
        raise ValueError(f"JSON feed of {len(document)} bytes, want at most {MAX_JSON_FEED_BYTES}")
    data = parse_json(document, "JSON feed")
    if not isinstance(data, dict) or "jsonfeed.org/version/" not in str(data.get("version")):
        raise ValueError("line 1, column 0: found JSON whose version is no JSON Feed's, want https://jsonfeed.org/version/1 or 1.1")

    def fields_of(holder: dict[str, Any]) -> dict[str, str]:
        fields = {"base": base}
        for name, field in JSON_FIELDS.items():
            if type(holder.get(name)) in (str, int, float):     # numeric ids are coerced; a lone surrogate cannot be printed
                fields.setdefault(field, str(holder[name]).encode("utf-8", "replace").decode())
        return fields

    head.update(fields_of(data), kind="json")
    if isinstance(data.get("items"), list):
        yield from (fields_of(item) for item in data["items"] if isinstance(item, dict))


def read_feed(document: bytes, base_url: str) -> Feed:
    """What broke it is in `.warning`; where no feed began, `.kind` is ""."""
    head = {"kind": "", "base": ""}
    found = (json_entries(document, head, base_url) if document[:1] == b"{" else
             xml_entries(in_pieces(io.BytesIO(xml_without_prolog(document))), FEED_ROOTS, head, base_url))
    items, warning = gathered((feed_item(fields, head["kind"]) for fields in found), 4 * len(document) + XML_PIECE_BYTES)
    site = absolute_url(head["base"], first_field(head, FEED_LINKS[:3]))
    return Feed(head["kind"], feed_item(head, head["kind"]).title, site, items, warning)


def parse_feed(body: bytes | str, content_type: str = "", base_url: str = "") -> Feed:
    """A feed of RSS 0.9x, 1.0 or 2.0, Atom 0.3 or 1.0, or JSON Feed 1.x: what it lists, in its order (R9).

    Titles are text, links absolute where `base_url` or the feed gives a base, dates ISO 8601 in UTC or None. A feed that breaks off
    gives the items before the break, and `.warning` says where. ValueError, with the position, where no feed began. Linear time; no
    entity of a DTD is expanded.

    >>> parse_feed("<rss><channel><item><title>AT&amp;T</title><link>a</link></item></channel></rss>", base_url="https://wal.sh/").items[0]
    FeedItem(title='AT&T', url='https://wal.sh/a', id='', published=None)
    """
    document = feed_document(marked_utf8(body), content_type)
    feed = read_feed(document, base_url)
    if feed.warning and document[:1] != b"{" and (repaired := repaired_xml(document)) != document:
        feed = read_feed(repaired, base_url)
    if not feed.kind:
        raise ValueError(f"no feed: {feed.warning}")
    return feed


def marked_utf8(body: bytes | str) -> bytes:
    """Text as UTF-8 with a byte order mark, which overrules the encoding that it declares."""
    return body if isinstance(body, bytes) else body.encode("utf-8-sig", "replace")


def sitemap_pieces(body: bytes) -> Iterator[bytes]:
    """The sitemap, decompressed where it is gzip. ValueError where it breaks or passes a bound."""
    import gzip
    import zlib
    is_gzip = body.startswith(b"\x1f\x8b")
    if is_gzip and body.count(b"\x1f\x8b\x08") > MAX_GZIP_MEMBERS:      # before any is read, since empty ones are read in one go
        raise ValueError(f"gzip of more than {MAX_GZIP_MEMBERS} members: byte 0")
    packed = io.BytesIO(body)
    size = tags = 0
    try:
        for piece in in_pieces(gzip.GzipFile(fileobj=packed) if is_gzip else packed):
            yield piece
            size, tags = size + len(piece), tags + piece.count(b"<")
            if size > MAX_SITEMAP_BYTES or tags > MAX_SITEMAP_TAGS:
                raise ValueError(f"cut after {MAX_SITEMAP_BYTES} bytes, or {MAX_SITEMAP_TAGS} tags")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"broken gzip: byte {packed.tell()}: {error}") from None


def text_entries(pieces: Iterable[str], base_url: str) -> Iterator[dict[str, str]]:
    """As `xml_entries`, of a list with one URL a line; what is none is passed over."""
    torn = ""                           # the line that the next piece goes on with
    for piece in itertools.chain(pieces, ("\n",)):
        *lines, torn = (torn[:MAX_URL_LENGTH] + piece).replace("\r", "\n").split("\n")
        yield from ({"link": url, "base": base_url} for url in map(str.strip, lines) if ABSOLUTE_HTTP.match(url))


def sitemap_entry(fields: dict[str, str]) -> SitemapEntry:
    url = absolute_url(fields["base"], fields.get("link", ""))
    return SitemapEntry(url, url and one_line(fields.get("lastmod", "")[:MAX_DATE_LENGTH]) or None)


def parse_sitemap(body: bytes | str, base_url: str = "") -> Sitemap:
    """A sitemap or a sitemap index of sitemaps.org in XML, or a list of URLs in text; gzip or not. Nothing it names is followed.

    One that breaks off, or passes a bound, gives the entries before, and `.warning` says where. ValueError, with the position, where it is
    no sitemap. Linear time, and memory of the entries only.

    >>> parse_sitemap(b"<urlset><url><loc>https://wal.sh/</loc><lastmod>2026-05-23</lastmod></url></urlset>").entries
    [SitemapEntry(url='https://wal.sh/', lastmod='2026-05-23')]
    """
    from codecs import iterdecode

    head: dict[str, str] = {}
    pieces = sitemap_pieces(marked_utf8(body))
    first = next(pieces, b"")
    texts = iterdecode(itertools.chain((first,), pieces), body_codecs(first, "")[0], "replace")
    start = next(texts, "").lstrip("\ufeff \t\r\n\0")
    whole = itertools.chain((start,), texts)
    if ABSOLUTE_HTTP.match(start):
        head["kind"], found = "text", text_entries(whole, base_url)
    else:
        found = xml_entries(map(str.encode, whole), SITEMAP_ROOTS, head, base_url)
    entries, warning = gathered(map(sitemap_entry, found), MAX_SITEMAP_TEXT)
    if "kind" not in head:
        raise ValueError(f"no sitemap: {warning}")
    return Sitemap(head["kind"], entries, warning)


# === 11. ROBOTS2   robots2 v0.2.1 (opt-in) ================================
# Owns the meaning of a robots2.txt text and of the answers to the ask protocol. It narrows what the other gates allow, never more:
# whatever is not understood is kept to be shown, and no permission ever comes of it.

# Each directive's values, strictest first: of several lines the strictest counts; a value that is not listed counts as the first.
# `crawl` and `read` are the gate: may we come at all, may we look at what came. The others are the harness's business, answered by
# robots2_stance. `short-only`: under 50 words of the source a quote, attribution not counted; `session-only`: memory of the running session,
# no disk, no vectors, no index; `market` is free text; `rate` is requests a minute, or "polite"; with `announce: yes` X-Agent-Identity goes
# with every request to this host.
ROBOTS2_DIRECTIVES: dict[str, tuple[str, ...]] = {name: tuple(values) for name, *values in map(str.split, """
    crawl no ask yes
    read no ask yes
    summarise no ask yes
    quote no short-only yes
    derivative no ask yes
    train no ask yes
    store no session-only yes
    compete no yes
    market
    personalise no yes
    monetise no ask yes
    attribution required preferred none
    link-back required preferred none
    rate
    announce yes no
    honest yes
""".strip().splitlines())}
ROBOTS2_SIGNALS = {         # what the site says of its own content; shown, decides nothing
    "content-type": "opinion|news|reference|satire|commercial|research|personal", "editorialised": "yes|no|partial",
    "ai-assisted": "yes|no|partial", "primary-language": "[a-z]{1,8}(?:-[a-z0-9]{1,8})*",       # an IETF language tag
}
ROBOTS2_AMERICAN = lazy_re(r"\A(summar|personal|monet|editorial)iz")
ROBOTS2_COMMENT = lazy_re(r"(?:^|\s)#")        # a `#` inside a URL begins no comment
ROBOTS2_FIRST_LINE = lazy_re(rf"\n[{ROBOTS_BLANKS}]*[^{ROBOTS_BLANKS}\n#]")
ROBOTS2_CHAIN_ID = lazy_re(rf"(?i)\n[{ROBOTS_BLANKS}]*#[{ROBOTS_BLANKS}]*meta[{ROBOTS_BLANKS}]*:[{ROBOTS_BLANKS}]*chain-id[{ROBOTS_BLANKS}]*:([^\n]*)")


def robots2_name(text: str) -> str:
    """A directive's name as the text spells it: case and American spelling do not make another directive.

    >>> robots2_name(" Summarize ")
    'summarise'
    """
    name = text.strip().lower()
    return ROBOTS2_AMERICAN.sub(r"\1is", name) if "iz" in name else name


def robots2_reading(directive: str, value: str) -> tuple[float, str]:
    """What a directive's value is read as ("": as nothing said), after its rank: of two readings the one with the lower rank is the stricter.

    >>> [robots2_reading(*line) for line in (("quote", "Short-Only"), ("train", "maybe"), ("rate", "-5"), ("rate", "fast"))]
    [(1, 'short-only'), (0, 'no'), (0, '0'), (inf, '')]
    """
    values, said = ROBOTS2_DIRECTIVES[directive], value.lower()
    if values:
        rank = values.index(said) if said in values else 0
        return rank, values[rank]
    if directive == "market":
        return 0, value
    if not re.fullmatch("[+-]?[0-9]+", said):       # a pace, not a permission: nothing to withhold
        return math.inf, said if said == "polite" else ""
    rate = 0 if said[0] == "-" else int(said.lstrip("+0")[:9] or 0)      # int() of a long number is slow, or an error
    return rate, str(rate)


class Robots2(NamedTuple):
    """A robots2.txt as it concerns one agent category (`policy`), or several merged along a chain."""

    chain_id: str                       # of a `# meta: chain-id:` line at the top, or ""
    policy: dict[str, str]              # what holds for us: the global directives, overridden by our block's
    signals: dict[str, str]             # as written
    report_to: list[str]
    chain: str | None                # the URL of the next file, as written
    unknown: list[Robots2Line]
    paths: tuple[RobotsTxt, ...]        # every one of them may deny

    @classmethod
    def parse(cls, body: bytes | str, category: str = ROBOTS2_CATEGORY) -> Robots2:
        """Read a robots2.txt; at most 500 KiB of it, in linear time. Never raises.

        A block is ours where it names our category or our product token. It ends at the next block or at a `User-agent` line.
        Path rules inside our block bind us besides those of the selected group. Lines under a header that is no
        `[agent: …]` bind everyone: in doubt they narrow.
        """
        text = robots_text(body)[0].rstrip()
        lines = text.split("\n")        # the first is empty, so that numbers count from 1
        everyone, ours, others = (dict[str, tuple[float, str]]() for _ in range(3))     # somebody else's block is read like ours, then dropped
        shown = []                      # to the robots.txt reader, and as whose
        signals: dict[str, str] = {}
        report_to: dict[str, None] = {}         # a set that keeps its order
        unknown: list[Robots2Line] = []
        chain, section, us = None, everyone, {category.lower(), UA_TOKEN.lower()}

        for number, raw in enumerate(lines):
            line = ROBOTS2_COMMENT.split(raw.lstrip("\ufeff").strip(), maxsplit=1)[0].rstrip()
            left, _, value = line.partition(":")
            name, value, known = robots2_name(left), value.strip(), True
            if line.startswith("["):
                words = [word.partition("/")[0] for word in re.findall(r"[^\s\[():,|]+", line.partition("]")[0].lower())]
                agents = words[1:] if words[:1] == ["agent"] else []        # names and categories, without versions
                known = bool(agents) and line.endswith("]")
                section = everyone if not agents or "*" in agents else others if us.isdisjoint(agents) else ours
                raw = "User-agent: *" if section is ours else raw
            elif name in ROBOTS2_DIRECTIVES:
                reading = robots2_reading(name, value)
                known = reading[1] == value.lower() if ROBOTS2_DIRECTIVES[name] else reading[1] != ""
                if reading[1] and reading[0] < section.setdefault(name, reading)[0]:
                    section[name] = reading
            elif name in ROBOTS2_SIGNALS:
                known = bool(re.fullmatch(f"(?ai){ROBOTS2_SIGNALS[name]}", value))
                if known:
                    signals.setdefault(name, value)
            elif name == "report-to":
                report_to[value] = None
            elif name == "chain":
                known = number == len(lines) - 1 and bool(re.fullmatch(r"(?i)https?://[^\s/]\S*", value))
                chain = value if known else chain
            else:       # a path rule, or for the robots.txt reader to recognise as a misspelt one
                known = not line or name in ("user-agent", "allow", "disallow")
                if name.startswith("user"):
                    section = everyone
            shown.append((section, raw))
            if not known and len(unknown) < ROBOTS2_MAX_UNKNOWN:
                unknown.append(Robots2Line(number, name, value))

        named = ROBOTS2_CHAIN_ID.search(ROBOTS2_FIRST_LINE.split(text, maxsplit=1)[0])
        paths = tuple(RobotsTxt.parse("\n".join(raw if whose is read else "" for whose, raw in shown[1:])) for read in (everyone, ours))
        policy = {name: said for name, (_, said) in {**everyone, **ours}.items()}
        return cls(named[1].strip() if named else "", policy, signals, list(report_to), chain, unknown, paths)

    @property
    def rate_interval(self) -> float | None:
        """Seconds between requests that `rate` asks for; None where it asks for none, and for a rate of 0, which the gate denies."""
        rate = self.policy.get("rate", "polite")
        return None if rate in ("polite", "0") else 60 / int(rate)

    def path_rule(self, target: str) -> Rule | None:
        """The path rule that decides `target`, an absolute URL or `path[?query]`: the first that denies, else the first that allows."""
        return min(filter(None, (paths.match(target) for paths in self.paths)), key=operator.attrgetter("allow"), default=None)

    def to_dict(self) -> dict[str, Any]:
        return {**as_json(self._replace(paths=())), "rate_interval": self.rate_interval}


def robots2_chain(files: Sequence[tuple[str, Robots2]]) -> tuple[Robots2, str | None]:
    """The files read so far, the site's own first, each with its URL: merged, and the URL to read next or None.

    At most three chained files; the first file that repeats an earlier one, by URL or by `chain-id`, ends the chain and adds nothing.
    The text leaves the join open; ours: the nearer file is the site's own word. Each directive and signal that it states holds, the
    chained file fills its silence. Path rules are fences, and fences add up: what either file denies is denied.
    """
    merged, seen = files[0][1], {files[0][0], files[0][1].chain_id}
    for url, file in files[1:ROBOTS2_MAX_CHAIN + 1]:
        names = {url, file.chain_id or url}
        if seen & names:
            return merged, None
        seen |= names
        merged = merged._replace(
            policy={**file.policy, **merged.policy}, signals={**file.signals, **merged.signals},
            report_to=list(dict.fromkeys(merged.report_to + file.report_to)), chain=file.chain,
            unknown=(merged.unknown + file.unknown)[:ROBOTS2_MAX_UNKNOWN], paths=merged.paths + file.paths)
    return merged, merged.chain if merged.chain not in seen and len(files) <= ROBOTS2_MAX_CHAIN else None


def robots2_stance(policy: dict[str, str], directive: str) -> str:
    """What a policy says of a use, in the text's words ("yes", "no", "ask", "short-only", "required" …), or "unstated".

    ValueError for a directive that the text does not have: a misspelt question must not look like silence.
    >>> robots2_stance({"quote": "short-only"}, "quote"), robots2_stance({}, "train")
    ('short-only', 'unstated')
    """
    name = robots2_name(directive)
    if name not in ROBOTS2_DIRECTIVES:
        raise ValueError(f"directive is {directive!r}, want one of {', '.join(ROBOTS2_DIRECTIVES)}")
    return policy.get(name, "unstated")


def robots2_gate(robots2: Robots2, target: str) -> Robots2Ruling:
    """Path rules, then `crawl`, `read` and `rate`. "ask" stands until every directive in `.ask` is permitted (`ask_permits`)."""
    rule = robots2.path_rule(target)
    if rule is not None and not rule.allow:
        return Robots2Ruling("denied", f"robots2.txt line {rule.line}: Disallow: {rule.value}", rule=rule)
    for name, refusal in (("crawl", "no"), ("read", "no"), ("rate", "0")):
        if robots2.policy.get(name) == refusal:
            return Robots2Ruling("denied", f"robots2.txt says {name}: {refusal}")
    ask = tuple(name for name in ("crawl", "read") if robots2.policy.get(name) == "ask")
    return Robots2Ruling("ask", "robots2.txt wants to be asked: " + ", ".join(ask), ask) if ask else Robots2Ruling("allowed")


def robots2_identity(category: str = ROBOTS2_CATEGORY) -> str:
    """The value of X-Agent-Identity. ValueError where the category could not stand in a header.

    >>> robots2_identity()
    'Walsh-Research/1.2 (ai-researcher)'
    """
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", category):
        raise ValueError(f"agent category is {category!r}, want letters, digits and hyphens")
    return f"{ROBOTS2_AGENT} ({category})"


ROBOTS2_IDENTITY = f"{ROBOTS2_AGENT} ({ROBOTS2_CATEGORY})"


def robots2_ask_url(wire_url: str, directive: str) -> str:
    """Where a site is asked for a directive: HEAD this URL, with X-Agent-Identity.

    >>> robots2_ask_url("https://example.org:8443/blog/a?b", "summarize")
    'https://example.org:8443/.well-known/robots2-ask?directive=summarise&agent=Walsh-Research/1.2'
    """
    return f"{site_of(wire_url)}{ROBOTS2_ASK_PATH}?directive={robots2_name(directive)}&agent={ROBOTS2_AGENT}"


def parse_ask_answer(status: int, headers: Sequence[tuple[str, str]]) -> AskAnswer:
    """What an answer to the ask protocol grants. Only a 200 with one understood decision permits anything; 429 is "later"."""
    if status == 429:
        return AskAnswer("later", reason="HTTP 429, ask again later")
    if status != 200:
        return AskAnswer("deny", reason=f"HTTP {status}, want 200", cacheable=status == 404)
    # Proxies join equal headers by ", ", which no well-formed scope contains. An empty scope stays: it must not turn site-wide.
    decisions, scopes = ([word.strip(" \t") for name, value in headers if name.lower() == header for word in re.split(separator, value)]
                         for header, separator in (("x-robots2-decision", ","), ("x-robots2-scope", ",[ \t]+")))
    decision = ", ".join(sorted({word.lower() for word in decisions}))
    if decision not in ("allow", "allow-once", "deny"):
        return AskAnswer("deny", reason=f"X-Robots2-Decision is {decision[:80]!r}, want allow, allow-once or deny")
    return AskAnswer(decision, tuple(scopes), f"X-Robots2-Decision: {decision}", cacheable=decision != "allow-once")


# What servers read in more than one way: a broken or doubled escape, an escaped slash, backslash or control, raw unsafe octets; and some
# drop `;…` before they resolve dots.
SCOPE_DOUBT = lazy_re(r"(?i)%(?![0-9a-f]{2})|%(?:[01][0-9a-f]|25|2f|5c|7f)|[^!-~]|[\\?#]|/(?:\.|%2e){1,2};")


def scope_form(path: str) -> str:
    """A path or a scope in one spelling; "" where servers may differ in what it means."""
    return robots_octets(path) if path.startswith("/") and not SCOPE_DOUBT.search(path) else ""


def scope_covers(scopes: Sequence[str], path: str) -> bool:
    """Whether `path` (`path[?query]`) lies within one of the scopes of an answer; without scopes the whole site does.

    A last `*` covers everything below, an inner `*` exactly one segment. A scope that ends otherwise covers that one path,
    and not with a query; a `*` beside other characters is a plain one. Malformed scopes cover nothing; dot segments of the path
    are resolved, so that a scope with any matches none; in doubt no.
    >>> scope_covers(["/blog/*", "/u/*/public"], "/blog/2026/a?b"), scope_covers(["/blog/*"], "/blog/../docs/")
    (True, False)
    """
    if not scopes:
        return True
    bare, mark, query = path.partition("#")[0].partition("?")
    form = scope_form(bare)
    segments = resolve_dot_segments(form).split("/")
    segments[-1] += mark + query
    for scope in scopes if form else ():
        pattern = scope_form(scope).split("/")
        if pattern[-1] == "*":
            pattern[-1:] = segments[len(pattern) - 1:] or ["*"]
        if len(pattern) == len(segments) and all(piece == segment or piece == "*" and segment for piece, segment in zip(pattern, segments)):
            return True
    return False


def ask_permits(answer: AskAnswer | None, path: str) -> bool:
    """Whether an answer permits its directive on `path`; no answer on file is no."""
    return answer is not None and answer.decision.startswith("allow") and scope_covers(answer.scopes, path)


# === 12. EXCHANGE   R1 R6 R7 R9 R13   spec 8, 10.4, 22.1 =================
# Owns what goes out and what comes back: the only spelling of a request, and the results that a caller sees.

class Kind(NamedTuple):
    """How requests of one kind behave; everything not said here is the same for all."""

    accept: str
    max_redirects: int = MAX_ROBOTS_REDIRECTS
    transport_retries: int = 1          # after an exchange that got no HTTP answer


KINDS = {
    "target": Kind("text/markdown, application/atom+xml;q=0.9, application/rss+xml;q=0.9, application/feed+json;q=0.9, "
                   "text/html;q=0.8, */*;q=0.5", MAX_REDIRECTS, DEFAULT_MAX_RETRIES),       # R9: markdown first
    **dict.fromkeys(("robots", "robots2"), Kind("text/plain, */*;q=0.5")),
    "blocklist": Kind("application/json"),
    "schema": Kind("application/schema+json, application/json;q=0.9"),
    "ask": Kind("*/*", 0),
    "fixture": Kind("text/markdown, text/html;q=0.8, */*;q=0.5", MAX_REDIRECTS),
}
MAX_BYTES_OF = {"robots": MAX_ROBOTS_BYTES + 1, "robots2": MAX_ROBOTS_BYTES + 1, "blocklist": MAX_BLOCKLIST_BYTES,
                "schema": MAX_SCHEMA_BYTES, "ask": 1}
if TYPE_CHECKING:
    Headers = Sequence[tuple[str, str]]


def tag_url(url: str, impl: str, sha: str, spec: str = SPEC_VERSION) -> str:
    """The URL with R13's parameters after its own; query and fragment are kept, an empty `sha` is left out.

    >>> tag_url("https://wal.sh/robots.txt", "walsh/research", "afd2c01")
    'https://wal.sh/robots.txt?impl=walsh%2Fresearch&sha=afd2c01&spec=walsh-research-compliance/v1.3'
    """
    before, hash_mark, fragment = url.partition("#")
    address, _, query = before.partition("?")
    own = (("impl", impl, ""), ("sha", sha, ""), ("spec", spec, "/"))       # R13's example leaves the slash of `spec` as it is
    tags = [f"{name}={re.sub(f'[^A-Za-z0-9._~{safe}-]', percent_encode, value)}" for name, value, safe in own if value]
    return f"{address}?{'&'.join(filter(None, [query, *tags]))}{hash_mark}{fragment}"


def request_headers(kind: str, validators: Validators, announce: str = "") -> dict[str, str]:
    """Every header of an outgoing request but Host and Connection, which belong to the socket. User-Agent last: nothing overrides it (R1)."""
    return {"Accept": KINDS[kind].accept, "Accept-Encoding": "gzip, deflate", **conditional_headers(validators),
            **({"X-Agent-Identity": announce} if announce else {}), "User-Agent": USER_AGENT}


def wants_any_success(status: int, headers: Headers) -> bool:
    """For policy documents and sitemaps, which servers send under any type."""
    return 200 <= status < 300


def wants_body(status: int, headers: Headers) -> bool:
    """R6: of what came back, only a success of a readable type is read."""
    return wants_any_success(status, headers) and not is_unread_type(header_value(headers, "content-type"))


def wants_structured(status: int, headers: Headers) -> bool:
    """For `discover`: what R6 reads, and gzip as sitemaps come in it."""
    is_archive = re.fullmatch("application/(?:x-)?gzip|(?:application|binary)/octet-stream", content_type_of(headers)[0])
    return wants_any_success(status, headers) and bool(is_archive) or wants_body(status, headers)


Octets = bytes                  # Result.bytes is a count
NOTHING: list[Any] = []         # the defaults of tuples that a caller makes by hand
NO_FIELDS: dict[str, Any] = {}


def as_response(given: Any) -> Response:
    """What a transport handed over, whatever its class. AttributeError, TypeError, ValueError: it is no answer."""
    headers = [(name.lower(), value.strip()) for name, value in given.headers]
    body = b"".join([given.body])       # no copy of what is bytes
    return Response(operator.index(given.status), headers, body, bool(given.truncated))


def decided_dict(value: Decision | Result) -> dict[str, Any]:
    """JSON-ready: times in ISO 8601 UTC, and without the body (R6)."""
    shown: dict[str, Any] = as_json(value)
    shown.pop("body", None)
    for name in ("at", "retry_at"):
        if shown.get(name) is not None:
            shown[name] = iso_utc(shown[name])
    return {**shown, **{name: getattr(value, name) for name in ("recommendation", "ok") if hasattr(value, name)}}


def recommendation_of(value: Decision | Result) -> str | None:
    """What the policy model advises: its word for the verdict, and "not_recommended" where another gate than R2 refused for good."""
    if value.gate in ("R3", "address", "robots2") and value.retry_at is None:
        return "not_recommended"
    return value.verdict and value.verdict.recommendation


class Decision(NamedTuple):
    """What the gates say of a URL; true where they allow it.

    `retry_at` (Unix seconds) stands where the answer is "not yet"; without it a refusal is final.
    """

    allowed: bool
    url: str
    gate: str | None = None                     # "R3", "R2", "robots2", "address"; "R4", "R5" where it is only too early
    reason: str = ""
    verdict: Verdict | None = None
    rule: Rule | None = None
    crawl_delay: float | None = None
    waited: float = 0.0                         # seconds
    retry_at: float | None = None
    group: str | None = None                    # the selected User-agent value
    robots_source: str = ""                     # where robots.txt came from, and how old it is
    blocked_by: BlockedDomain | None = None
    content_signals: dict[str, str] = NO_FIELDS

    recommendation = property(recommendation_of)
    to_dict = decided_dict

    def __bool__(self) -> bool:
        return self.allowed


class Result(NamedTuple):
    """What became of one target. `outcome`: "fetched", "unchanged", "denied", "deferred", "skipped" or "failed".

    `status` is the HTTP status or None; `gate`, `reason`, `verdict`, `rule` and `robots_source` say who decided, and by which line of what;
    `bytes` and `sha256` are of the decoded body; `links` is [Link(title, url)] of Markdown and feeds, never of a page; `metadata` a dict;
    `waited`, `elapsed` and `crawl_delay` are seconds, `at` and `retry_at` Unix seconds; `body` (bytes) and `.text` are in memory only (R6).
    """

    outcome: str
    url: str                                    # as asked
    final_url: str = ""
    status: int | None = None
    gate: str | None = None
    reason: str = ""
    verdict: Verdict | None = None
    rule: Rule | None = None
    group: str | None = None
    content_type: str = ""
    bytes: int = 0                              # of the decoded body
    sha256: str = ""
    etag: str = ""
    last_modified: str = ""
    title: str = ""
    links: list[Link] = NOTHING
    metadata: dict[str, Any] = NO_FIELDS
    robots_directives: list[str] = NOTHING           # meta robots and X-Robots-Tag that bind us
    content_signals: dict[str, str] = NO_FIELDS
    redirects: list[str] = NOTHING
    attempts: int = 0                           # requests sent for this target
    waited: float = 0.0                         # seconds, for whatever reason
    elapsed: float = 0.0                        # seconds
    at: float = 0.0                             # Unix seconds
    retry_at: float | None = None
    warnings: list[str] = NOTHING
    robots_source: str = ""
    crawl_delay: float | None = None
    body: Octets = b""                          # in memory only

    recommendation = property(recommendation_of)
    to_dict = decided_dict

    @property
    def ok(self) -> bool:
        return self.outcome in ("fetched", "unchanged")

    @property
    def text(self) -> str:
        """The body as text: charset from the header, a BOM, the page's own word, then UTF-8 with replacement."""
        return decode_body(self.body, self.content_type)


class Source(NamedTuple):
    """One way in which a site offers structured content.  R9"""

    kind: str                   # "feed", "markdown", "llms.txt" or "sitemap"
    url: str
    items: list[Any] = NOTHING       # FeedItem, Link, LlmsLink or SitemapEntry; empty where the source is only listed
    title: str = ""
    warning: str = ""


def spell_seconds(seconds: float) -> str:
    """A span as people say it.

    >>> spell_seconds(2.345), spell_seconds(90), spell_seconds(7200), spell_seconds(200000)
    ('2.3 s', '90 s', '2 h', '2.3 d')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(max(0.0, seconds), 1):g} s"


def spell_rule(rule: Rule) -> str:
    return f"robots.txt line {rule.line}: {'Allow' if rule.allow else 'Disallow'}: {printable(rule.value, 120)}"


def robots_decision(url: str, target: str, state: RobotsState, now: float, unreachable: str) -> Decision:
    """R2: what is held of a site's robots.txt says this of a target (path and query). spec 9.1.1, 9.1.4"""
    robots, verdict, gate, retry_at = state.robots, Verdict.ALLOWED_IMPLICIT, None, None
    if state.unreachable_since:
        held = f"a copy held since {iso_utc(state.fetched_at)}" if robots else "none held"
        source = f"{held}; unreachable since {iso_utc(state.unreachable_since)}"
    else:
        age = now - state.checked_at
        source = f"robots.txt ({state.status}) " + ("fetched now" if age < 1.0 else f"from the cache, {spell_seconds(age)} old")
    if robots_undefined_for_good(state, now):
        reason = "robots.txt out of reach for 30 days: the host counts as without rules (RFC 9309 2.3.1.4)"
    elif robots is not None:
        verdict, rule = robots.ruling(target)
        reason = (spell_rule(rule) if rule else "robots.txt has no group for us" if robots.group is None
                  else f"no rule of the group {printable(robots.group, 60)} matches")
        gate = "R2" if verdict is Verdict.DISALLOWED_EXPLICIT else None
        return Decision(gate is None, url, gate, reason, verdict, rule, robots.crawl_delay, group=robots.group,
                        robots_source=source, content_signals=robots.content_signals)
    elif not state.unreachable_since:
        reason = f"robots.txt answered {state.status}: no rules"
    else:
        verdict, reason = Verdict.UNKNOWN_UNREACHABLE, f"{state.trouble}; allowed (spec 9.1.1)"
        if unreachable == "defer":
            gate, retry_at, reason = "R2", max(state.retry_at, now), f"{state.trouble}; deferred (RFC 9309 2.3.1.4)"
    return Decision(gate is None, url, gate, reason, verdict, retry_at=retry_at, robots_source=source)


class Reading(NamedTuple):
    """What a body says, as metadata."""

    title: str = ""
    links: list[Link] = NOTHING
    metadata: dict[str, Any] = NO_FIELDS
    page: PageMetadata | None = None
    warnings: list[str] = NOTHING


def read_metadata(body: bytes, kind: str, content_type: str, base_url: str) -> Reading:
    """R6, R9: the metadata of a body by what the server says it is (`kind`, of `media_kind`): markdown, a feed, or the head of a page."""
    if kind == "markdown":
        text = decode_body(body[:MAX_READ_BYTES], content_type)
        warnings = [f"links are read from the first {MAX_READ_BYTES} bytes"] if len(body) > MAX_READ_BYTES else []
        return Reading(parse_llms_txt(text).title, markdown_links(text), warnings=warnings)
    if kind == "html":
        page = page_metadata(decode_body(body[:MAX_HEAD_CHARS], content_type), base_url)
        metadata = {name: value for name, value in page.to_dict().items() if value and name not in ("title", "robots")}
        return Reading(page.title, [], metadata, page)
    if not body or kind not in ("feed", "xml", "json"):
        return Reading()
    try:
        feed = parse_feed(body, content_type, base_url)
    except ValueError as error:
        return Reading(warnings=[f"not a feed: {error}"] if kind == "feed" else [])
    links = [Link(item.title, item.url) for item in feed.items if item.url]
    return Reading(feed.title, links, {"feed": feed.kind, "site": feed.url, "items": len(feed.items)},
                   warnings=[feed.warning] if feed.warning else [])


def no_document(visit_trouble: str, answer: Response | TransportError | Decision) -> str:
    """Why a policy document did not come, in one line."""
    reason = f"answered {answer.status}" if isinstance(answer, Response) else answer.reason
    return reason if isinstance(answer, Decision) else visit_trouble or reason


def parse_tag(text: str) -> tuple[str, str]:
    """R13: ("ORG/REPO", "SHA" or "") of "ORG/REPO[@SHA]". ValueError: it is none."""
    match = re.fullmatch(r"([A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})(?:@([A-Za-z0-9._-]{1,64}))?", text)
    if match is None:
        raise ValueError(f"tag is {printable(text, 80)!r}, want ORG/REPO or ORG/REPO@SHA")
    return match[1], match[2] or ""


def is_kin(host: str, wire: str) -> bool:
    """Whether a canonical document may have moved there: by https to the same host, its parent or a subdomain."""
    other = split_url(wire).host
    return wire.startswith("https://") and (f".{other}".endswith(f".{host}") or "." in other and host.endswith(f".{other}"))


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, want one of {', '.join(choices)}")


# ==========================================================================
# THE WATERLINE: pure above, effects below.
# ==========================================================================

# === 13. SHELF   R11   spec 11.2 =========================================
# Owns what outlives a process: pickle entries in one private folder, and the locks between processes.
# Whatever the disk does or holds, the outcome is a miss or an unwritten entry and one line of warning, never an error.

OPEN_PRIVATELY = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
# An entry; with ".tmp" a file that lives while its lock is held: what an entry is written to, or a lock itself.
SHELF_FILE = lazy_re(r"([a-z]+)-[0-9a-f]{32}\.pickle(\.(?:[0-9a-f-]+\.)?tmp)?\Z")

PICKLE_STOP, PICKLE_FRAME = 0x2E, 0x95
# All that protocol 4 says for None, bool, int, float, str, bytes, list and dict: opcode -> bytes with its argument.
# No tuple: as a dict key its hash recurses in C (a crash at depth 10^5) and doubles with each shared level (a hang).
# No PUT: nine bytes of it take all memory (gh-115952).
PICKLE_FIXED = {
    **dict.fromkeys(b"N\x88\x89", 1),           # NONE NEWTRUE NEWFALSE
    **dict.fromkeys(b"(]ae}su\x94", 1),         # MARK EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS MEMOIZE
    0x80: 2, 0x4B: 2, 0x4D: 3, 0x4A: 5, 0x47: 9,    # PROTO BININT1 BININT2 BININT BINFLOAT
    0x68: 2, 0x6A: 5,                           # BINGET LONG_BINGET
}
# opcode -> width of the little-endian count of the bytes that follow
PICKLE_COUNTED = {
    0x8C: 1, 0x58: 4, 0x8D: 8,                  # SHORT_BINUNICODE BINUNICODE BINUNICODE8
    0x43: 1, 0x42: 4, 0x8E: 8,                  # SHORT_BINBYTES BINBYTES BINBYTES8
    0x8A: 1, PICKLE_FRAME: 8,                   # LONG1
}


def sha256_hex(data: bytes) -> str:
    import hashlib  # loads OpenSSL: --version need not pay for it

    return hashlib.sha256(data).hexdigest()


CACHE_ROOTS = {
    "win32": [("LOCALAPPDATA", "\\")], "darwin": [("HOME", "/Library/Caches/")], "": [("XDG_CACHE_HOME", "/"), ("HOME", "/.cache/")]}


def default_cache_dir(environ: Mapping[str, str], platform: str) -> str | None:
    """The cache folder by $WALSH_RESEARCH_CACHE or the custom of `platform` (a `sys.platform`); None where the environment names no place.

    >>> default_cache_dir({"HOME": "/home/ada", "XDG_CACHE_HOME": "not/absolute"}, "linux")
    '/home/ada/.cache/walsh-research'
    """
    if chosen := environ.get("WALSH_RESEARCH_CACHE"):
        return chosen
    for variable, below in CACHE_ROOTS.get(platform, CACHE_ROOTS[""]):
        root = environ.get(variable, "")
        if root.startswith("/") or root and platform == "win32":        # the XDG specification: a relative path is to be ignored
            return f"{root.rstrip('/')}{below}walsh-research"
    return None


def pickle_refusal(blob: bytes) -> str:
    """Why `blob` must not be unpickled, in a few words; empty where its opcodes build plain data no larger than itself.

    >>> pickle_refusal(b"\\x80\\x04cos\\nsystem\\n.")
    'opcode 0x63 is not plain data'
    """
    if blob[:2] != b"\x80\x04":
        return "is no pickle of protocol 4"
    at, end = 0, len(blob)
    for _ in range(MAX_PICKLE_OPCODES):
        if at >= end:
            return "is torn"
        code = blob[at]
        if code == PICKLE_STOP:
            return "" if at + 1 == end else f"has {end - at - 1} bytes after its end"
        at += PICKLE_FIXED.get(code, 1)
        if code in PICKLE_COUNTED:
            count = int.from_bytes(blob[at:at + PICKLE_COUNTED[code]], "little")
            at += PICKLE_COUNTED[code]
            if count > end - at:
                return "is torn"
            at += 0 if code == PICKLE_FRAME else count      # what a frame holds is opcodes again
        elif code not in PICKLE_FIXED:
            return f"opcode 0x{code:02x} is not plain data"
    return f"has more than {MAX_PICKLE_OPCODES} opcodes"


@cache
def plain_unpickler() -> Callable[[bytes], Any]:
    """A `loads` that refuses every global: the second wall behind `pickle_refusal`."""
    import pickle  # costs a millisecond that a run without a cache need not pay

    class PlainUnpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError("globals are refused")

    return lambda blob: PlainUnpickler(io.BytesIO(blob)).load()


def shelf_entry(kind: str, key: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"format": SHELF_FORMAT, "kind": kind, "key": key, "data": data}


def disk_trouble(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def ownership_doubt(status: os.stat_result) -> str:
    """Why a file or folder must not be believed, or nothing; Windows keeps owners and modes elsewhere."""
    if sys.platform == "win32":
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be written by others" if status.st_mode & 0o022 else ""


def read_private_file(path: str, limit: int) -> bytes:
    """The bytes of a file of our own; `OSError` where it cannot be read, `ValueError` where it must not be."""
    fd = os.open(path, os.O_RDONLY | OPEN_PRIVATELY)        # non-blocking: a FIFO must not hang us
    try:
        status = os.fstat(fd)
        doubt = ownership_doubt(status) if stat.S_ISREG(status.st_mode) else "is no regular file"
        if not doubt and status.st_size > limit:
            doubt = f"has {status.st_size} bytes, at most {limit} are read"
        if doubt:
            raise ValueError(doubt)
        return b"".join(iter(lambda: os.read(fd, status.st_size + 1), b""))     # one piece as a rule, which is not copied
    finally:
        os.close(fd)


def write_private_file(path: str, blob: bytes, modified_at: float, durable: bool) -> None:
    """`blob` becomes the whole file at `path` or, with an `OSError`, nothing changes there and no scratch file stays."""
    scratch = f"{path}.{os.urandom(8).hex()}.tmp"
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_PRIVATELY, 0o600)
    try:
        try:
            with suppress(OSError):
                lock_file(fd)       # else a sweep takes it for a dead writer's
            rest = memoryview(blob)
            while rest:
                rest = rest[os.write(fd, rest):]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)            # NFS and quotas speak up only here
        os.utime(scratch, (modified_at, modified_at))       # the bot's clock, which `sweep` is asked by
        os.replace(scratch, path)
        if durable and os.name != "nt":     # Windows syncs no folder
            folder = os.open(os.path.dirname(path), os.O_RDONLY)        # the operator may have named a symbolic link
            with suppress(OSError):         # nor do some network file systems
                os.fsync(folder)
            os.close(folder)
    finally:            # Ctrl-C, too, leaves nothing half-written
        with suppress(OSError):
            os.unlink(scratch)


def make_private_folders(folder: str) -> None:
    """`folder` and its missing parents, each 0700 (`os.makedirs` gives the parents the umask's mode)."""
    parent = os.path.dirname(folder.rstrip("/" + os.sep))
    if parent not in ("", folder) and not os.path.isdir(parent):     # a missing drive is its own parent
        make_private_folders(parent)
    with suppress(FileExistsError):         # another process was faster
        os.mkdir(folder, 0o700)


# What is locked is a file that exists only meanwhile, and the kernel lets go of it when its holder dies.

LOCK_IS_TAKEN = PermissionError if os.name == "nt" else BlockingIOError
HELD_NAMES: dict[str, ShelfLock] = {}         # what this process holds; bots without a cache exclude each other here alone


def lock_file(fd: int) -> bool:
    """Until it is closed. Never blocks; False where another has it."""
    try:
        if sys.platform == "win32":
            import msvcrt
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # POSIX only
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except LOCK_IS_TAKEN:
        return False
    return True


def open_locked(path: str) -> int | None:
    """A descriptor that holds the lock of the file at `path`; None where another has it, `OSError` where there are no locks."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_PRIVATELY, 0o600)
    is_locked = False
    try:
        is_locked = lock_file(fd) and os.path.samestat(os.fstat(fd), os.stat(path))     # not one that is gone since it was opened
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            with suppress(OSError):
                os.unlink(path)
            raise
    finally:
        if not is_locked:
            with suppress(OSError):
                os.close(fd)
    return fd if is_locked else None


def remove_locked(path: str, fd: int) -> None:
    """Ends a lock: its file goes first, so that a copy of the descriptor in some child holds nothing. Windows removes no open file."""
    steps: list[Callable[[], None]] = [lambda: os.unlink(path), lambda: os.close(fd)]
    for step in steps[::-1] if os.name == "nt" else steps:
        with suppress(OSError):
            step()


class ShelfLock(NamedTuple):
    """A name that this process holds until `release`, its end, or the end of a `with`. A forked child does not hold it."""

    name: str
    path: str = ""
    fd: int = -1        # where this process is all that is excluded

    def release(self, *_: object) -> None:
        if HELD_NAMES.get(self.name) is self:       # neither released before, nor a forked child's copy
            del HELD_NAMES[self.name]
            if self.path:
                remove_locked(self.path, self.fd)

    def __enter__(self) -> Self:
        return self

    __exit__ = release


def abandon_locks() -> None:
    """In a forked child: the descriptors are closed and no more, since the locks are the parent's."""
    for lock in HELD_NAMES.values():
        with suppress(OSError):
            os.close(lock.fd)
    HELD_NAMES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=abandon_locks)


def remove_outlived(file: os.DirEntry[str], now: float) -> None:
    """Removes an entry past its lifetime, or what a dead process was about to write; never a file of another name."""
    found = SHELF_FILE.match(file.name)
    if not found or not file.is_file(follow_symlinks=False):
        return
    if not found[2]:
        if now - file.stat(follow_symlinks=False).st_mtime > ENTRY_LIFETIME_SECONDS.get(found[1], ENTRY_LIFETIME_SECONDS[""]):
            os.unlink(file.path)
    else:           # judged by its lock alone: clocks jump
        fd = open_locked(file.path)
        if fd is not None:
            remove_locked(file.path, fd)


class Shelf:
    """Entries of plain data (what JSON can say, and bytes) by kind and key, one pickle file each in `folder`; None keeps them in memory.

    `warn` gets one line per cause. `wall_time` (Unix seconds) dates the entries. Thread-safe; touches no disk before its first use.
    """

    def __init__(self, folder: str | None, warn: Callable[[str], None], wall_time: Callable[[], float] = time.time) -> None:
        self.folder, self.warn, self.wall_time = folder, warn, wall_time
        self._memory: dict[tuple[str, str], bytes] = {}         # what the disk did not take; it beats what the disk says
        self._robots_bytes = 0                                  # of robots.txt bodies among it, which servers choose
        self._warned: set[str] = set()

    def load(self, kind: str, key: str) -> dict[str, Any] | None:
        """The data last stored under `kind` and `key`, or None; whatever is wrong with the file is a warning and None."""
        blob = self._memory.get((kind, key))
        if blob is None and not self._is_folder_usable():
            return None
        path = self._path(kind, key)
        name = os.path.basename(path)
        try:
            if blob is None:
                blob = read_private_file(path, MAX_ENTRY_BYTES.get(kind, MAX_ENTRY_BYTES[""]))
                if refusal := pickle_refusal(blob):
                    raise ValueError(refusal)
            entry = plain_unpickler()(blob)
            data = entry["data"]
            if not isinstance(data, dict) or entry != shelf_entry(kind, key, data):
                raise ValueError(f"is no entry of {SHELF_FORMAT} for its name")
            return data
        except FileNotFoundError:
            return None
        except OSError as error:        # one sick disk is one line, not one an entry
            self._say("read", f"cache: {name}: {disk_trouble(error)}; taken as absent")
        except Exception as error:  # noqa: BLE001 - a hostile pickle can end in anything; what its decoder quotes is not shown
            self._say(name, f"cache: {name}: {error if type(error) is ValueError else type(error).__name__}; taken as absent")
        return None

    def store(self, kind: str, key: str, data: dict[str, Any], *, durable: bool = False) -> bool:
        """True where `data` now lies whole on the disk (`durable`: also after a power cut); else this process remembers it."""
        import pickle  # not at the top: see plain_unpickler

        blob = pickle.dumps(shelf_entry(kind, key, data), protocol=4)
        if self._is_folder_usable(create=True):
            for patience in [0.01] * 5 if os.name == "nt" else [0.0] * 2:
                try:
                    write_private_file(self._path(kind, key), blob, self.wall_time(), durable)
                    self.forget(kind, key)
                    return True
                except (OSError, ValueError, OverflowError) as error:       # the last two: a clock whose time no file system can write
                    trouble = disk_trouble(error)
                    time.sleep(patience)    # Windows: another process has the old file open, for microseconds; or a sweep took the new one
            self._say("write", f"cache: {self.folder} cannot be written: {trouble}")
        self.forget(kind, key, blob)
        return False

    def forget(self, kind: str, key: str, instead: bytes = b"") -> None:
        """What the disk did not take is not remembered here either. Of robots.txt bodies up to a bound is, the oldest going first."""
        grown = len(instead) - len(self._memory.pop((kind, key), b""))
        if instead:
            self._memory[kind, key] = instead
        if kind.startswith("robots"):
            self._robots_bytes += grown
            while self._robots_bytes > MAX_REMEMBERED_ROBOTS_BYTES:
                oldest = next(entry for entry in self._memory if entry[0].startswith("robots"))
                self._robots_bytes -= len(self._memory.pop(oldest))

    def try_lock(self, name: str) -> ShelfLock | None:
        """The lock of that name, or None where a process that shares the folder, or any thread of this one, holds it. Never blocks.

        The kernel releases it on death. Where there is no such thing as a lock, this process alone is in order.
        """
        lock = ShelfLock(name)
        if name not in HELD_NAMES and self._is_folder_usable(create=True):
            path = self._path("lock", name) + ".tmp"
            try:
                fd = open_locked(path)
                if fd is None:
                    return None
                lock = ShelfLock(name, path, fd)
            except OSError as error:
                self._say("lock", f"cache: no lock in {self.folder} ({disk_trouble(error)}); other processes are not waited for")
        if HELD_NAMES.setdefault(name, lock) is lock:
            return lock
        if lock.path:
            remove_locked(lock.path, lock.fd)       # another thread was faster
        return None

    def sweep(self, now: float) -> None:
        """Entries long unused and scratch files of dead processes go away.

        A whole pass a day for all processes; between two of them, only what was being written goes, if it is among the first MAX_SWEEP_FILES.
        """
        if not self._is_folder_usable():
            return
        swept_at = as_number((self.load("sweep", "marker") or {}).get("at"))
        is_due = not is_fresh(swept_at, SWEEP_INTERVAL_SECONDS, now)
        with suppress(OSError), os.scandir(self.folder) as files:       # the next pass finds what this one lost
            for file in files if is_due else islice(files, MAX_SWEEP_FILES):
                with suppress(OSError):
                    remove_outlived(file, now if is_due else -math.inf)
        if is_due:
            self.store("sweep", "marker", {"at": now})

    def _path(self, kind: str, key: str) -> str:
        """Of the entry: no byte of its name was chosen by a server."""
        return os.path.join(self.folder or "", f"{kind}-{sha256_hex(key.encode('utf-8', 'surrogatepass'))[:32]}.pickle")

    def _is_folder_usable(self, create: bool = False) -> bool:
        """Whether the folder is there and ours alone. Asked before each use: folders change under a long run."""
        if self.folder is None:
            return False
        try:
            if create and not os.path.isdir(self.folder):
                make_private_folders(self.folder)
            status = os.stat(self.folder)
            doubt = ownership_doubt(status) if stat.S_ISDIR(status.st_mode) else "is no folder"
        except (OSError, ValueError, RecursionError) as error:      # the last two: a NUL in the name, a thousand parents
            if isinstance(error, FileNotFoundError) and not create:
                return False            # nothing was ever stored
            doubt = disk_trouble(error)
        if doubt:
            self._say("folder", f"cache: {self.folder}: {doubt}; not used")
        return not doubt

    def _say(self, cause: str, line: str) -> None:
        if cause not in self._warned:
            self._warned.add(cause)
            self.warn(line)


# === 14. TRANSPORT   R1 R6   the only socket ===============================
# One HTTP/1.1 exchange: a name, an address that was checked, one connection, one answer.
# Nothing here follows a redirect, retries or sleeps.
#
# The wire format is read here and not by http.client, which takes "X: a\rContent-Length: 0" for two
# headers and "0x2" for a chunk size, and costs 22 ms and 6.6 MiB to load.
#
# Inside, trouble that no retry mends is a ValueError, and trouble that a retry may mend an OSError.
# `Deadline.during` makes a TransportError of both.

STATUS_LINE = lazy_re(r"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r?\n")
# RFC 9110 5.5: a value holds no control characters.
# RFC 9112 5.2: a line without a name goes on with the value before it.
HEADER_LINE = lazy_re(
    r"(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+):|[ \t])([\t\x20-\x7e\x80-\xff]*)\r?\n")
CHUNK_LINE = lazy_re(r"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
SENT_LINE = lazy_re(
    r"(?:GET|HEAD|CONNECT) [!-~]+ HTTP/1\.1"
    r"|[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*")
CONTENT_CODINGS = ("gzip", "x-gzip", "deflate")     # what request_headers asks for
# What the system raises: `ssl` an OSError, which is a ValueError besides where a certificate does
# not hold; an OverflowError where a number is too large, a RuntimeError where there is no thread.
TROUBLE = (OSError, ValueError, ArithmeticError, RuntimeError)
if TYPE_CHECKING:
    Addresses = list[tuple[int, Any]]       # (family, socket address)
    HeaderList = list[tuple[str, str]]      # (lower-case name, value)


def cause_of(error: BaseException) -> str:
    """One line of what went wrong, without error numbers and lines of C."""
    text = re.sub(r"\A\[[^\]]*\] | \(_ssl\.c:[0-9]+\)\Z", "", str(error))
    return printable(text or type(error).__name__, 200)


# 14a. The time and the connection of an exchange.

class Deadline:
    """The time of one exchange: name, proxy, connect, TLS, header and body together."""

    def __init__(self, seconds: float) -> None:
        self.seconds = min(seconds, LONGEST_DEADLINE_SECONDS)
        self.ends_at = time.monotonic() + self.seconds

    def remaining_seconds(self) -> float:
        """What is left, above 0. TimeoutError: nothing is."""
        seconds = self.ends_at - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("timed out")
        return seconds

    @contextmanager
    def during(self, stage: str, final: bool = False) -> Iterator[None]:
        """Trouble inside becomes a TransportError of one line, which names the stage."""
        try:
            self.remaining_seconds()
            yield
        except TROUBLE as error:
            final = final or isinstance(error, ValueError)
            reason = f"{stage}: {cause_of(error)}"
            if time.monotonic() >= self.ends_at:
                reason = f"no complete answer within {self.seconds:g} s ({stage})"
            raise TransportError(reason, final) from None


class Wire:
    """A connection, and what has come through it; no call waits beyond the deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.connection: Any = None
        self.unread = bytearray()           # what has come, and nobody has asked for yet
        self.line_budget_bytes = MAX_HEAD_BYTES

    def connect(self, addresses: Addresses) -> None:
        """To the first address that answers. OSError: none does."""
        import socket  # a decision from the cache needs none

        untried = addresses[:MAX_ADDRESSES_TRIED]
        while untried:
            # Each address gets its share of the time, so that a dead one does not use it all.
            share_seconds = self.deadline.remaining_seconds() / len(untried)
            family, address = untried[0]
            untried = untried[1:]
            try:
                self.connection = socket.socket(family, socket.SOCK_STREAM)
                self.connection.settimeout(share_seconds)
                self.connection.connect(address)
                return
            except OSError:
                self.close()
                if not untried:
                    raise

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """TLS from here on, with certificate and host name verified."""
        # A body that ends with the connection is whole only where close_notify came: a bare FIN
        # must be an error, and no end. The handshake is a step of its own, so that an interrupt
        # inside it finds a socket to close.
        self.connection = context.wrap_socket(
            self.connection, server_hostname=host, suppress_ragged_eofs=False,
            do_handshake_on_connect=False)
        self.timed().do_handshake()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def timed(self) -> Any:
        """The connection, with the time that is left as its timeout."""
        seconds = self.deadline.remaining_seconds()
        self.connection.settimeout(seconds)
        return self.connection

    def write(self, data: bytes) -> None:
        while data:
            sent_bytes = self.timed().send(data)
            data = data[sent_bytes:]

    def receive(self) -> bool:
        """Add to `unread`; False where the peer has closed. OSError: the connection was cut."""
        piece = self.timed().recv(PIECE_BYTES)
        self.unread += piece
        return len(piece) > 0

    def read(self, size: int) -> bytes:
        """One to `size` bytes, or b"" where the peer has closed."""
        if not self.unread:
            self.receive()
        piece = bytes(self.unread[:size])
        del self.unread[:size]
        return piece

    def read_exactly(self, size: int) -> bytes:
        while len(self.unread) < size:
            if not self.receive():
                raise ConnectionError("connection closed before its end")
        return self.read(size)

    def read_line(self) -> str:
        """Through the next LF, at the expense of the budget."""
        searched = 0
        while (found := self.unread.find(b"\n", searched)) < 0:
            searched = len(self.unread)
            if searched > self.line_budget_bytes:
                break
            if not self.receive():
                raise ConnectionError("connection closed before its end")
        length = found + 1
        if found < 0 or length > self.line_budget_bytes:
            raise ConnectionError(f"header or chunking of more than {MAX_HEAD_BYTES} bytes")
        self.line_budget_bytes -= length
        return self.read(length).decode("latin-1")

    def earn_lines(self, data_bytes: int) -> None:
        """Chunk framing costs a server nothing, so that the data must pay for it."""
        budget = self.line_budget_bytes + data_bytes // DATA_BYTES_PER_CHUNK_LINE_BYTE
        self.line_budget_bytes = min(budget, MAX_HEAD_BYTES)


# 14b. An answer: its header, where its body ends, what the body holds.

def read_head(wire: Wire) -> tuple[int, HeaderList]:
    """Status and headers of the answer; 1xx answers before it are skipped (RFC 9110 15.2)."""
    lines = head_lines(wire)
    while True:
        line = next(lines)
        match = STATUS_LINE.fullmatch(line)
        if match is None:
            raise ConnectionError(f"no HTTP/1 status line: {printable(line, 60)}")
        headers = read_headers(lines)
        status = int(match[1])
        if status >= 200:
            return status, headers


def head_lines(wire: Wire) -> Iterator[str]:
    for _ in range(MAX_HEADER_LINES):
        yield wire.read_line()
    raise ConnectionError(f"more than {MAX_HEADER_LINES} header lines")


def read_headers(lines: Iterator[str]) -> HeaderList:
    """The headers up to the empty line."""
    headers: HeaderList = []
    while True:
        line = next(lines)
        if line in ("\r\n", "\n"):
            return headers
        match = HEADER_LINE.fullmatch(line)
        is_fold = match is not None and match[1] is None
        if match is None or (is_fold and not headers):
            raise ConnectionError(f"broken header line: {printable(line, 60)}")
        name, value = match.groups()
        value = value.strip(" \t")
        if is_fold:
            name, begun = headers.pop()
            value = f"{begun} {value}"
        headers.append((name.lower(), value))


def header_items(headers: Headers, wanted: str) -> list[str]:
    """The comma-separated items of a header in lower case, over all the lines that repeat it."""
    items: list[str] = []
    for name, value in headers:
        if name == wanted:
            items += value.lower().split(",")
    return [item.strip(" \t") for item in items]


def content_length(headers: Headers) -> int | None:
    """What Content-Length says, or None. OSError: it is no number, or says two of them."""
    items = header_items(headers, "content-length")
    if not items:
        return None
    first = items[0].lstrip("0")
    is_repeated = all(item.lstrip("0") == first for item in items)
    is_number = all(re.fullmatch("[0-9]+", item) for item in items)
    if not is_repeated or not is_number or len(first) > MAX_LENGTH_DIGITS:
        said = printable(", ".join(items), 60)
        raise ConnectionError(f"Content-Length {said!r}, want one number")
    return int(first or "0")


def framed_pieces(wire: Wire, headers: Headers) -> Iterator[bytes]:
    """The body as it travels, in pieces, none of them empty (RFC 9112 6.3).

    Who takes all pieces has read the body to its exact end. Framing that contradicts itself is
    an OSError at once, not only at the first piece.
    """
    length = content_length(headers)
    codings = header_items(headers, "transfer-encoding")
    if codings:
        if length is not None or codings != ["chunked"]:    # RFC 9112 6.1: both may be smuggling
            said = printable(", ".join(codings), 60)
            raise ConnectionError(
                f"Transfer-Encoding {said!r}, want chunked, and no Content-Length beside it")
        return chunked_pieces(wire)
    if length is None:
        return iter(lambda: wire.read(PIECE_BYTES), b"")    # ends where the connection does
    return counted_pieces(wire, length)


def counted_pieces(wire: Wire, length: int) -> Iterator[bytes]:
    left = length
    while left:
        piece = wire.read(min(left, PIECE_BYTES))
        if not piece:
            raise ConnectionError(f"connection closed after {length - left} of {length} bytes")
        left -= len(piece)
        yield piece
    if wire.unread:
        raise ConnectionError(f"more than the {length} bytes of its Content-Length")


def chunked_pieces(wire: Wire) -> Iterator[bytes]:
    while True:
        match = CHUNK_LINE.fullmatch(wire.read_line())
        if match is None:
            raise ConnectionError("broken chunking: no chunk size where one is due")
        left = int(match[1], 16)
        if left == 0:
            break
        while left > PIECE_BYTES:
            yield wire.read_exactly(PIECE_BYTES)
            wire.earn_lines(PIECE_BYTES)
            left -= PIECE_BYTES
        piece = wire.read_exactly(left + 2)
        if not piece.endswith(b"\r\n"):
            raise ConnectionError("broken chunking: no CRLF after a chunk")
        wire.earn_lines(left)
        yield piece[:-2]
    while wire.read_line() != "\r\n":
        pass        # nothing in the trailers is for us


def content_codings(headers: Headers) -> list[str]:
    """The Content-Encodings to take off. ValueError: one that we did not ask for, or too many."""
    items = header_items(headers, "content-encoding")
    codings = [item for item in items if item not in ("", "identity")]
    is_known = set(codings).issubset(CONTENT_CODINGS)
    if not is_known or len(codings) > MAX_CONTENT_CODINGS:
        said = printable(", ".join(codings), 60)
        raise ValueError(f"Content-Encoding {said!r} is not one that we asked for")
    return codings


def new_decoder(coding: str, beginning: bytes) -> Any:
    import zlib  # a decision from the cache needs none

    if coding != "deflate":
        return zlib.decompressobj(zlib.MAX_WBITS + 16)      # 16: gzip's wrapper
    if beginning[0] & 15 == zlib.DEFLATED:
        return zlib.decompressobj(zlib.MAX_WBITS)
    return zlib.decompressobj(-zlib.MAX_WBITS)      # RFC 9110 8.4.1.2: some leave the wrapper off


def inflated_pieces(pieces: Iterator[bytes], coding: str) -> Iterator[bytes]:
    """One Content-Encoding taken off, in pieces. gzip may have several members (RFC 1952 2.2)."""
    from zlib import error as zlib_error

    decoder = None
    taken_bytes = given_bytes = 0
    for piece in pieces:
        if decoder is None:
            decoder = new_decoder(coding, piece)
        taken_bytes += len(piece)
        is_full = False
        while piece or is_full:
            if decoder.eof:
                if coding == "deflate" or not piece.startswith(b"\x1f"):
                    return      # what follows the last member is padding, which gzip ignores too
                decoder = new_decoder(coding, piece)
            try:
                data = decoder.decompress(piece, PIECE_BYTES)
            except zlib_error:
                raise ConnectionError(f"broken {coding} data") from None
            if data:
                given_bytes += len(data)
                yield data
            is_full = len(data) == PIECE_BYTES and not decoder.eof      # there may be more inside
            piece = decoder.unconsumed_tail or decoder.unused_data
        # So much for so little is stuffing, such as empty members without end.
        if taken_bytes > MAX_HEAD_BYTES + MAX_EXPANSION * given_bytes:
            raise ConnectionError(f"{coding} data outgrows what it holds")
    if decoder is not None and not decoder.eof:
        raise ConnectionError(f"{coding} data ends early")


def read_body(pieces: Iterator[bytes], headers: Headers, limit: int) -> tuple[bytes, bool]:
    """The content-decoded body, at most `limit` bytes of it, and whether it was cut there."""
    codings = content_codings(headers)
    length = content_length(headers) or 0
    is_useful_in_part = limit <= MAX_ROBOTS_BYTES + 1       # as a robots.txt is, and nothing else
    if length > limit and not codings and not is_useful_in_part:
        return b"", True        # it is not even read
    for coding in reversed(codings):
        pieces = inflated_pieces(pieces, coding)
    body = io.BytesIO()     # whose `getvalue` is no second copy
    for piece in pieces:
        room = limit - body.tell()
        body.write(piece[:room])
        if len(piece) > room:
            return body.getvalue(), True
    return body.getvalue(), False


# 14c. Names and proxies.

class LookUp:
    """One question to the system's resolver, which knows no deadline: its thread may be left."""

    def __init__(self, host: str, port: int, is_done: threading.Event) -> None:
        self.host, self.port, self.is_done = host, port, is_done
        self.addresses: Addresses = []      # none: there is no such name
        self.trouble = ""                   # why there is no answer
        self.answered_at = -math.inf        # on the monotonic clock, as is the next
        self.given_up_at = -math.inf
        self.given_up_after_seconds = 0.0

    def ask(self) -> None:
        import socket

        kind = socket.SOCK_STREAM
        no_such_name = [socket.EAI_NONAME]
        if hasattr(socket, "EAI_NODATA"):
            no_such_name.append(socket.EAI_NODATA)
        name = self.host.strip("[]").encode()       # as bytes it needs no codec: it is ASCII
        try:
            for answer in socket.getaddrinfo(name, self.port, type=kind):
                family, _, _, _, address = answer
                self.addresses.append((family, address))
        except Exception as error:  # noqa: BLE001 - is told to those who wait
            if getattr(error, "errno", None) not in no_such_name:
                self.trouble = cause_of(error)
        self.answered_at = time.monotonic()

    def is_fresh(self) -> bool:
        return time.monotonic() < self.answered_at + PIN_SECONDS

    def wait(self, deadline: Deadline) -> None:
        """OSError: there is no answer, or none in time."""
        if time.monotonic() < self.given_up_at + PIN_SECONDS:
            waited = f"{self.given_up_after_seconds:g} s"
            raise TimeoutError(f"no complete answer within {waited}, and none since")
        seconds = deadline.remaining_seconds()
        if not self.is_done.wait(seconds):
            self.given_up_at = time.monotonic()
            self.given_up_after_seconds = deadline.seconds
            raise TimeoutError("timed out")
        if self.trouble:
            raise OSError(self.trouble)


class Resolver:
    """Holds what names resolved to, so that the address which was checked is the one asked.

    A look-up that was given up holds that long as well. No name has two look-ups under way.
    """

    def __init__(self) -> None:
        # By host and port. It is replaced and never changed, since threads read it.
        self.pins: dict[tuple[str, int], LookUp] = {}
        self.under_way: dict[str, LookUp] = {}      # by host

    def addresses(self, host: str, port: int, deadline: Deadline) -> Addresses:
        """All addresses of the name; [] where there is no such name. OSError as `LookUp.wait`."""
        pin = self.pins.get((host, port))
        if pin is not None and pin.is_fresh():
            return pin.addresses
        while True:
            look_up = self.begin(host, port)
            look_up.wait(deadline)
            if look_up.port == port:
                return look_up.addresses

    def begin(self, host: str, port: int) -> LookUp:
        """The look-up of the host that is under way, or a new one."""
        import threading  # a decision from the cache needs none

        new = LookUp(host, port, threading.Event())
        thread = threading.Thread(target=self.look_up, args=(new,), daemon=True)
        thread.name = "walsh-research resolver"
        try:
            current = self.under_way.setdefault(host, new)
            if current is new:
                thread.start()
            return current
        except BaseException:       # an interrupt, or no thread: nobody may wait for this one
            self.end(new)
            raise

    def look_up(self, look_up: LookUp) -> None:
        """In a thread of its own. An answer that comes late is an answer; trouble is not kept."""
        try:
            look_up.ask()
            if not look_up.trouble:
                self.pin(look_up)
        finally:
            self.end(look_up)
            look_up.is_done.set()

    def pin(self, look_up: LookUp) -> None:
        pins = {**self.pins, (look_up.host, look_up.port): look_up}
        newest = list(pins.items())[-MAX_PINS:]
        self.pins = dict(newest)

    def end(self, look_up: LookUp) -> None:
        if self.under_way.get(look_up.host) is look_up:
            self.under_way.pop(look_up.host, None)


def port_of(parts: UrlParts) -> int:
    return parts.port or DEFAULT_PORTS[parts.scheme]


def environment_proxies() -> dict[str, str]:
    """By scheme, "all" and "no" besides."""
    pattern = re.compile("(?i)(?:https?|all)_proxy")
    if not any(pattern.fullmatch(name) for name in os.environ):
        return {}
    # It brings http.client and email along, which are slow to load.
    from urllib.request import getproxies_environment

    return getproxies_environment()


def proxy_for(parts: UrlParts, proxies: dict[str, str]) -> UrlParts | None:
    """The proxy that is set for a target; None: it is asked directly. ValueError: a bad setting."""
    name = parts.scheme
    if not proxies.get(name):
        name = "all"
    setting = proxies.get(name)
    if not setting:
        return None
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    bare_host = parts.host.strip("[]")
    if proxy_bypass_environment(f"{bare_host}:{port_of(parts)}", proxies):
        return None
    return parse_proxy(f"{name}_proxy", setting.strip())


def parse_proxy(name: str, setting: str) -> UrlParts:
    """`http://[user:password@]host[:port]`, or without its scheme. ValueError: it is none.

    No reason shows the setting: with a stray sign, any part of it may be a password.
    """
    wanted = "want http://[user:password@]host[:port]"
    other_kind = re.match("(?i)(socks4a?|socks5h?|socks|https)://", setting)
    if other_kind:
        kind = other_kind[1].lower()
        raise ValueError(f"{name} is a proxy of the kind {kind}, {wanted}")
    match = re.fullmatch("(?i)(?:http://)?([^/?#]+)/?", setting)
    try:
        if match:
            return split_url(f"http://{match[1]}")
    except ValueError:
        pass
    raise ValueError(f"{name} is no proxy that can be used, {wanted}")


def proxy_headers(proxy: UrlParts) -> dict[str, str]:
    if not proxy.userinfo:
        return {}
    import binascii
    from urllib.parse import unquote_to_bytes  # rarely needed

    user, _, password = proxy.userinfo.partition(":")
    credentials = unquote_to_bytes(f"{user}:{password}")
    encoded = binascii.b2a_base64(credentials, newline=False)
    return {"Proxy-Authorization": f"Basic {encoded.decode()}"}


# 14d. The exchange.

class Route(NamedTuple):
    """Where a request goes, and by which proxy, if by one."""

    target: UrlParts
    proxy: UrlParts | None

    @property
    def next_stop(self) -> UrlParts:
        return self.proxy or self.target

    @property
    def is_forwarded(self) -> bool:
        """By http through a proxy, which reads the request and may answer it."""
        return self.proxy is not None and self.target.scheme == "http"


class Door:
    """The default transport: one connection an exchange, to the address that was checked.

    `send(request)` gives a Response or raises TransportError; `resolve(url, timeout)` asks where
    a request would go, and pins it. `proxies` is a dict as `{"http": "http://proxy:3128",
    "https": ..., "all": ..., "no": "internal.test"}`; {} is none, None reads the environment.
    """

    def __init__(self, allow_private: bool = False, proxies: dict[str, str] | None = None) -> None:
        self.allow_private, self.proxies = allow_private, proxies
        self.resolver = Resolver()
        self.tls_context: ssl.SSLContext | None = None      # made for the first https target

    def resolve(self, url: str, timeout: float) -> None:
        """None where a request for `url` may go.

        TransportError: `refused` where an address is not public, `final` where there is none.
        """
        deadline = Deadline(timeout)
        with deadline.during("name"):
            self.checked_addresses(self.route(url), deadline)

    def send(self, request: Request) -> Response:
        """One exchange within `request.timeout` seconds: an answer of any status.

        TransportError: there is none.
        """
        deadline = Deadline(request.timeout)
        with deadline.during("request"):
            route = self.route(request.url)
            head = request_head(request, route)
        # That our own proxy is out of reach is final: it is no fault of the target's host, and
        # holds nobody back.
        is_final = False
        place = ""
        if route.proxy is not None:
            is_final = True
            place = f"proxy {route.proxy.host}:{port_of(route.proxy)}: "
        with deadline.during(f"{place}name", is_final):
            addresses = self.checked_addresses(route, deadline)
        wire = Wire(deadline)
        try:
            try:
                with deadline.during(f"{place}connect", is_final):
                    wire.connect(addresses)
                if route.target.scheme == "https":
                    self.secure(wire, route)
                return exchange(wire, request, head, route)
            finally:
                wire.close()
        finally:
            wire.close()        # again: an interrupt may have ended the first one early

    def route(self, url: str) -> Route:
        """ValueError as `split_url` and `proxy_for`.

        Proxy or not, a host whose spelling already tells that it is private is refused here.
        """
        target = split_url(url)
        refusal = host_refusal(target.host)
        if refusal and not self.allow_private:
            raise TransportError(refusal, final=True, refused=True)
        proxies = self.proxies
        if proxies is None:
            proxies = environment_proxies()
        proxy = proxy_for(target, proxies)
        return Route(target, proxy)

    def checked_addresses(self, route: Route, deadline: Deadline) -> Addresses:
        """Where to connect to: all addresses of the name, refused if any is not public.

        Behind a proxy they are those of the proxy, which may well be private: the names of
        targets are its business.
        """
        host = route.next_stop.host
        port = port_of(route.next_stop)
        addresses = self.resolver.addresses(host, port, deadline)
        if not addresses:
            raise ValueError(f"{host} does not exist")
        if self.allow_private or route.proxy is not None:
            return addresses
        for _, address in addresses:
            refusal = address_refusal(address[0])
            if refusal:
                reason = f"{host}: {refusal}"
                raise TransportError(reason, final=True, refused=True)
        return addresses

    def secure(self, wire: Wire, route: Route) -> None:
        """TLS to the target, through a tunnel where there is a proxy."""
        if route.proxy is not None:
            with wire.deadline.during("proxy"):
                open_tunnel(wire, route.target, route.proxy)
        with wire.deadline.during("TLS"):
            if self.tls_context is None:
                self.tls_context = verifying_tls_context()
            host = route.target.host.strip("[]")
            wire.secure(self.tls_context, host)


def exchange(wire: Wire, request: Request, head: bytes, route: Route) -> Response:
    """The request and its answer, over a connection that is open."""
    with wire.deadline.during("request"):
        wire.write(head)
    if request.departed is not None:
        request.departed()
    with wire.deadline.during("answer"):
        status, headers = read_head(wire)
        pieces = framed_pieces(wire, headers)
    if status == 407 and route.is_forwarded:
        raise TransportError("proxy: wants other credentials (407)", final=True)
    if request.method == "HEAD" or status in (204, 304):
        return Response(status, headers, b"")
    # R6: what nobody reads is not asked for.
    if request.wants is not None and not request.wants(status, headers):
        return Response(status, headers, b"")
    with wire.deadline.during("body"):
        body, is_cut = read_body(pieces, headers, request.max_bytes)
    return Response(status, headers, body, is_cut)


def open_tunnel(wire: Wire, target: UrlParts, proxy: UrlParts) -> None:
    """OSError where a proxy does not connect now, ValueError where it will not."""
    authority = f"{target.host}:{port_of(target)}"
    headers = {"Host": authority, "User-Agent": USER_AGENT}     # R1: the proxy learns it as well
    headers.update(proxy_headers(proxy))
    head = head_bytes(f"CONNECT {authority} HTTP/1.1", headers)
    wire.write(head)
    status, _ = read_head(wire)
    if status >= 500:
        raise ConnectionError(f"answers {status} to CONNECT, want 200")
    if status != 200:
        raise ValueError(f"answers {status} to CONNECT, want 200")
    if wire.unread:
        raise ConnectionError("sends bytes before the TLS handshake")


def request_head(request: Request, route: Route) -> bytes:
    """The request line and headers as they leave. User-Agent (R1) is the one that was handed in."""
    authority = host_key(request.url)
    path = f"{route.target.path or '/'}{route.target.query}"
    headers = {"Host": authority, "Connection": "close"}
    if route.proxy is not None and route.is_forwarded:
        path = f"http://{authority}{path}"      # RFC 9112 3.2.2: a proxy wants the absolute form
        headers.update(proxy_headers(route.proxy))
    headers.update(request.headers)
    return head_bytes(f"{request.method} {path} HTTP/1.1", headers)


def head_bytes(request_line: str, headers: dict[str, str]) -> bytes:
    """The bytes of a request's head. ValueError: a line could begin another line, or a request."""
    lines = [request_line]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    for line in lines:
        if not SENT_LINE.fullmatch(line):
            name = printable(line.partition(":")[0], 60)
            raise ValueError(f"{name!r} cannot be sent as it is")
    head = "\r\n".join([*lines, "", ""])
    return head.encode("latin-1")


def verifying_tls_context() -> ssl.SSLContext:
    """Certificates and host names are always verified: there is no switch.

    OpenSSL itself honours SSL_CERT_FILE and SSL_CERT_DIR. ValueError: SSL_CERT_FILE is unusable.
    """
    import ssl  # slow to load, and http needs none

    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # 3.9 sets the option that has OpenSSL 3 take a bare FIN for close_notify.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    bundle = os.environ.get("SSL_CERT_FILE")
    if bundle:          # OpenSSL passes over an unreadable one: every site would look self-signed
        try:
            context.load_verify_locations(cafile=bundle)
        except OSError as error:
            reason = f"SSL_CERT_FILE {printable(bundle, 100)}: {cause_of(error)}"
            raise ValueError(reason) from None
    return context


# === 15. BOT   R3b R4 R5 R6 R8   spec 7 ==================================
# Owns the gates in order, every piece of mutable state, and the loop that takes targets through both.

NO_VALIDATORS = Validators()
NO_RULES = RobotsState()


class Later(NamedTuple):
    """Not yet: go on at `at`, on the monotonic clock."""

    at: float
    gate: str
    reason: str
    host: str = ""                      # where the visit that waits is now


if TYPE_CHECKING:
    Clock = Any                 # time() in Unix seconds, monotonic() in seconds, sleep(seconds)
    Transport = Any             # send(Request) -> Response, or TransportError; optionally resolve(url, timeout)
    Wants = Callable[[int, Headers], bool]
    T = TypeVar("T")
    Steps = Generator[Later, None, T]     # work that says when it wants to go on, and at last returns a T
    Reply = Response | TransportError       # what came of a request
    Answer = Reply | Decision               # what came of a visit; a Decision: a gate refused
    Said = Later | Decision | None           # by a gate: come again, refused, passed
    Gate = Callable[["Bot", "Visit"], Said]


def log_warning(line: str) -> None:
    import logging  # slow to import; most runs have nothing to warn of
    logging.getLogger("walsh_research").warning("%s", line)


class SystemClock:
    """The clock of a real run."""

    jitter_seconds = 0.03       # ours: how much earlier a server may see the second of two requests than we count

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    monotonic, time = staticmethod(time.monotonic), staticmethod(time.time)


PARSE_ERROR_WARNING = "robots.txt is not text: what of it can be read is obeyed, the rest says nothing (allowed_but_warn)"
SLOTLESS_KINDS = ("robots", *CANONICAL_KINDS)       # a host's first of these takes no slot; robots2.txt, its chain and its questions do


class Pacer:
    """R4: what all bots of a process share: one door, and each host's pace (on the monotonic clock)."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock                          # kept alive, so that its id stays its own
        self.door = _thread.RLock()               # held for a step, never for a sleep
        self.hosts: collections.defaultdict[str, HostPace] = collections.defaultdict(HostPace)
        self.asked: set[str] = set()                # policy documents that took no slot: only a first one takes none
        self.on_disk: dict[tuple[str, str], dict[str, Any]] = {}    # what this process last wrote, to know what others wrote since


SYSTEM_CLOCK = SystemClock()
SYSTEM_PACER = Pacer(SYSTEM_CLOCK)
OTHER_PACERS: collections.OrderedDict[int, Pacer] = collections.OrderedDict()      # by id of the clock: each simulation has a time of its own


def pacer_of(clock: Clock) -> Pacer:
    """One pacer for each notion of time."""
    if isinstance(clock, SystemClock):
        return SYSTEM_PACER
    pacer = OTHER_PACERS.setdefault(id(clock), Pacer(clock))
    while len(OTHER_PACERS) > MAX_PACERS:
        OTHER_PACERS.popitem(last=False)
    return pacer


def forget_parent() -> None:
    """After fork: locks that another thread of the parent held would never be released here."""
    for pacer in (SYSTEM_PACER, *OTHER_PACERS.values()):
        pacer.door = _thread.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_parent)


@lru_cache(maxsize=2**14)       # ours: a run goes round its hosts, and a smaller cache would forget each before its next turn
def site_and_host(origin: str) -> tuple[str, str, str]:
    """What the robots.txt and the pace of a wire URL that begins with `origin` are kept by, and why it must not be asked, if so."""
    site = site_key(origin + "/")
    return site, host_key(origin + "/"), host_refusal(split_url(site).host)


@lru_cache(maxsize=16)      # few: a server chooses what it says, and how long that is
def media_of(content_type: str) -> tuple[str, str, bool]:
    """(media type, which reading fits it, whether R6 leaves it unread) of a Content-Type."""
    media_type = content_type_of([("content-type", content_type)])[0]
    return media_type, media_kind(media_type), is_unread_type(media_type)


def serial_of(entry: dict[str, Any]) -> float:
    return as_number(entry.get("serial"))


def whole(visit: Visit, answer: Answer) -> Response:
    """A document of the origin; ValueError where it did not come, or not whole."""
    if not isinstance(answer, Response) or answer.status != 200:
        raise ValueError(no_document(visit.trouble, answer))
    if answer.truncated:
        raise ValueError(f"more than {MAX_BYTES_OF[visit.kind]} bytes")
    return answer


def size_of(state: RobotsState) -> int:
    return sum(map(len, (state.body, *state.files.values())))


class Visit:
    """One URL on its way: as asked, where it is now, and what it has been through."""

    attempts = 0                        # requests that left
    retries = 0
    slot = -math.inf                    # when its next request may start
    waits = 0                           # for the slot of the next request; after two the gates look at what is held, or it would never end
    waited = patient_until = 0.0        # patient: with a lock that another process holds
    lock = ShelfLock("")                # none; the host's, from the claim of a slot until the request has left
    wants: Wants = staticmethod(wants_any_success)
    interval = MIN_REQUEST_INTERVAL     # what its request asks to be left after it
    retry_at: float | None = None       # where this ends for now (R5)
    trouble = ""                        # why it cannot go on
    has_strayed = False                 # redirected to where it must not follow
    is_slotless = False                 # its request takes no slot: the first for a policy document
    has_left = False                    # its latest request
    is_cut_off = False                  # its robots.txt got no HTTP answer at all: one attempt

    def __init__(self, kind: str, url: str, wire: str, now: float, held: Validators = NO_VALIDATORS, held_of: str = "") -> None:
        self.kind, self.url, self.started_at = kind, url, now
        self.held, self.held_of = held, held_of or wire     # R7: validators, and of exactly which URL
        self.decision = Decision(True, url)         # the latest that let it pass
        self.redirects: list[str] = []
        self.warnings: list[str] = []
        self.answers: dict[str, AskAnswer] = {}     # of the site, for this one request (robots2: allow-once)
        self.move(wire)

    def move(self, wire: str) -> None:
        self.at = wire
        self.site, self.host, self.refusal = site_and_host(site_of(wire))
        self.validators = self.held if wire == self.held_of else NO_VALIDATORS


class Lane:
    """The targets of one host that wait for their turn, each (as asked, wire form, key)."""

    def __init__(self, host: str, steps: Steps[Result] | None = None) -> None:
        self.host, self.steps = host, steps         # the steps of the target whose turn it is
        self.since = math.inf                       # its first target waits for no pace, only for its turn
        self.queue: collections.deque[tuple[str, str, str]] = collections.deque()


class Bot:
    """A conformant bot: every request passes blocklist (R3), address check, robots.txt (R2) and throttle (R4), in that order.

    `cache_dir=None` keeps everything in memory. `timeout` is for one whole exchange and `max_wait` how far away a permitted start may be before a
    target is "deferred", both in seconds; `max_bytes` bounds a decoded body. `unreachable` is "allow" (spec 9.1.1) or "defer" (RFC 9309 2.3.1.4).
    `robots2` is True or an agent category; `tag` "ORG/REPO[@SHA]" (R13); `interactive` is for a person at a prompt (spec 1.1) and alone permits
    `robots_mode` "report_only" and "ignore". `transport`, `clock`, `rand`, `warn` and `trace` are for tests, simulations and commands.
    ValueError: an argument that would break a promise.
    """

    requests = 0                                # that left, of any kind
    blocklist_status = 0                        # HTTP status of the last answer to a request for the list; 0 where there was none
    last_result: Result | None = None           # of the target that `discover` read
    _blocklist: Blocklist | None = None         # in force
    _refresh = RefreshState()                   # of its generation
    _rules_bytes = 0
    _waits_for = "", ""                         # host and reason, for whoever watches

    def __init__(self, cache_dir: Any = PLATFORM_CACHE, *, origin: str = ORIGIN, timeout: float = 30.0, max_wait: float = 300.0,
                 max_bytes: int = 10 * 2**20, unreachable: str = "allow", robots_mode: str = "respect", robots2: bool | str = False,
                 interactive: bool = False, allow_private: bool = False, tag: str | None = None, transport: Transport = None,
                 clock: Clock = None, rand: Callable[[], float] = roll, warn: Callable[[str], None] | None = None,
                 trace: Callable[[str], None] | None = None) -> None:
        require_choice("unreachable", unreachable, ("allow", "defer"))
        require_choice("robots_mode", robots_mode, ("respect", "report_only", "ignore"))
        if robots_mode != "respect" and not interactive:
            raise ValueError(f"robots_mode={robots_mode!r} is for a person at a prompt (interactive=True, spec 1.1): R2 is a MUST")
        for name, value in (("timeout", timeout), ("max_bytes", max_bytes)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}, want a positive number")
        if not max_wait >= 0:
            raise ValueError(f"max_wait is {max_wait!r}, want seconds, 0 or more")
        self.origin = site_of(wire_url(origin))
        if not allow_private and (refusal := site_and_host(self.origin)[2]):
            raise ValueError(f"origin {self.origin}: {refusal}, so that every opt-out would be lost; allow_private permits it")
        self._timeout, self._max_wait, self._max_bytes = timeout, max_wait, max_bytes
        self._unreachable, self._robots_mode, self._interactive = unreachable, robots_mode, interactive
        self._category = "" if robots2 is False else ROBOTS2_CATEGORY if robots2 is True else robots2
        self._identity = self._category and robots2_identity(self._category)        # one that cannot be announced is a ValueError here
        self._tag = parse_tag(tag) if tag else None
        if interactive:
            self._tag = (self._tag[0] if self._tag else TOOL_NAME, "repl")      # spec 1.1
        self._clock = clock if clock is not None else SYSTEM_CLOCK
        self._now, self._time = self._clock.monotonic, self._clock.time
        self._margin = getattr(self._clock, "jitter_seconds", PACE_MARGIN_SECONDS)
        self._pacer = pacer_of(self._clock)
        self._allow_private, self._counts_tries = allow_private, transport is not None     # which need not say when a request leaves
        self._transport = Door(allow_private=allow_private) if transport is None else transport
        self._rand, self._trace, self._tell = rand, trace, warn or log_warning
        self._said: set[str] = set()
        folder = default_cache_dir(os.environ, sys.platform) if cache_dir is PLATFORM_CACHE else cache_dir
        self._shelf = Shelf(folder and os.fspath(folder), self._warn, self._time)
        self._is_shared = folder is not None        # with other processes
        if folder is None and cache_dir is not None:
            self._warn("cache: no home folder is known; nothing is remembered between runs, nor shared with other processes")
        self._rules: collections.OrderedDict[str, RobotsState] = collections.OrderedDict()     # by key on the shelf
        self._lanes: set[Lane] = set()              # of the run that goes on
        self._errands: dict[str, tuple[Steps[Decision | None], Later]] = {}      # by name, and until when each waits
        if interactive and not (sys.stdin and sys.stdin.isatty()):
            self._warn("interactive=True without a terminal: R4 and R5 are off, which is for a person at a prompt alone (spec 1.1)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left open between two requests; what is old goes from the cache."""
        self._errands.clear()
        self._shelf.sweep(self._time())

    # --- What callers ask -------------------------------------------------

    def may_fetch(self, url: str, wait: bool = True) -> Decision:
        """The gates of spec 7 in order: R3, address, R2, R4. True where `url` may be requested now.

        `wait=True` takes the host's slot and returns when it is due; the caller then sends its one request. `wait=False` asks without taking
        or waiting for a slot of the target. Policy documents that are stale are waited for either way (R12). A bad URL is a refusal with its reason.
        """
        return self._decide(url, TARGET_GATES if wait else TARGET_GATES[:-1])

    def _decide(self, url: str, gates: Sequence[Gate]) -> Decision:
        try:
            visit = Visit("target", str(url), wire_url(str(url)), self._now())
        except ValueError as error:
            return Decision(False, mask_credentials(str(url)), reason=str(error))
        try:
            return self._drive(self._pass(visit, gates))._replace(waited=visit.waited)
        finally:
            visit.lock.release()

    def fetch(self, url: str, fresh: bool = False) -> Result:
        """One target through every gate, to its end. Policy, network and server trouble never raise: they are outcomes.

        A page that has not changed since the last fetch is "unchanged" and has no body (R7); `fresh=True` asks for it anew.
        """
        return self._fetch(url, wants_body if fresh else None)

    def probe(self, url: str) -> Result:
        """As fetch, with one retry instead of five where there is no HTTP answer: for the fixtures of the self-test."""
        return self._fetch(url, kind="fixture")

    def _fetch(self, url: str, wants: Wants | None = None, kind: str = "target") -> Result:
        return next(self._results([url], 0.0, wants, kind))

    def run(self, urls: Iterable[str], min_age: float = 3600.0) -> Iterator[Result]:
        """Many targets, strictly serial, each host at its own pace and no host waiting for another; a Result each as it is done.

        De-duplicated by canonical URL (R7); a source that was fetched less than `min_age` seconds ago is skipped (R8).
        """
        return self._results([urls] if isinstance(urls, str) else urls, min_age)

    def _results(self, urls: Iterable[str], min_age: float, wants: Wants | None = None, kind: str = "target") -> Iterator[Result]:
        first_spelling: dict[str, str] = {}
        lanes: dict[str, Lane] = {}
        for url in map(str, urls):
            try:
                wire = wire_url(url)
                key = canonical_url(wire)
            except ValueError as error:
                yield self._unasked("failed", url, str(error))
                continue
            if key in first_spelling:
                yield self._unasked("skipped", url, f"the same source as {first_spelling[key]} (R7)")
                continue
            first_spelling[key] = url
            host = site_and_host(site_of(wire))[1]
            if host not in lanes:
                lanes[host] = Lane(host)
            lanes[host].queue.append((url, wire, key))
        yield from self._schedule(lanes.values(), min_age, wants, kind)

    def discover(self, url: str) -> Iterator[Source]:
        """The structured forms of a source, in R9's order: a feed, markdown, llms.txt; then sitemaps, listed and never followed.

        The target is read; feeds that its head advertises are listed. Every request passes every gate. A target that was denied or failed
        yields nothing; `last_result` is its Result.
        """
        result = self._fetch(url, wants_structured)     # read afresh: a 304 would have no items
        self.last_result = result._replace(body=b"")       # R6: nothing is kept that nobody needs
        named: set[Any] = set()
        for source in self._sources(result) if result.ok else ():
            if source[:2] not in named:
                named.add(source[:2])
                yield source

    def _sources(self, result: Result) -> Iterator[Source]:
        found, url = self._source_of(result), result.final_url
        if found is not None:
            yield found
        for feed in result.metadata.get("feeds", ()):
            yield Source("feed", feed["url"], title=feed["title"])
        if found is None or found.kind == "markdown":
            llms = self._fetch(resolve_url(url, "/llms.txt"), wants_body)
            if llms.ok and llms.body and media_of(llms.content_type)[1] in ("markdown", "text", "other"):
                parsed = parse_llms_txt(llms.text, llms.final_url)
                yield Source("llms.txt", llms.final_url, parsed.links, parsed.title)
        robots = self._rules.get(site_key(url), NO_RULES).robots
        for sitemap in robots.sitemaps if robots else ():
            yield Source("sitemap", sitemap)

    def _source_of(self, result: Result) -> Source | None:
        """What the target itself is, if it is one of the structured forms."""
        url, body, kind = result.final_url, result.body, media_of(result.content_type)[1]
        if kind == "markdown":
            return Source(kind, url, result.links, result.title)
        if kind == "html" or not body:
            return None
        with suppress(ValueError):
            feed = parse_feed(body, result.content_type, url)
            return Source("feed", url, feed.items, feed.title, feed.warning)
        with suppress(ValueError):
            sitemap = parse_sitemap(body, url)
            return Source("sitemap", url, sitemap.entries, "", sitemap.warning)
        return None

    def attest(self) -> dict[str, Any]:
        """The attestation document of spec 14, measured: a requirement is true because its checks just passed in the sandbox."""
        return attest()     # the one look downwards of this file: the proof needs the bot

    @property
    def blocklist_size(self) -> int:
        """Entries of the list that is in force; 0 also where none was ever adopted."""
        return len(self._blocklist or ())

    @property
    def hosts_left(self) -> int:
        """Of the run that goes on: hosts with targets still to be asked for."""
        return len(self._lanes)

    def outlook(self) -> tuple[str, str, float]:
        """For whoever watches a run: the host that it waits for, why, and about how many seconds are left."""
        left = [len(lane.queue) * self._pacer.hosts[lane.host].interval for lane in self._lanes]
        return (*self._waits_for, max(left, default=0.0))

    # --- The loop ---------------------------------------------------------

    def _schedule(self, lanes: Iterable[Lane], *how: Any) -> Iterator[Result]:
        """Serial, and never idle while some host may be asked: of those that may, the one with the most time still before it."""
        self._lanes, order = set(lanes), itertools.count()
        waiting = [(-math.inf, next(order), lane) for lane in lanes]
        ready: list[tuple[float, int, Lane]] = []
        while waiting or ready:
            now = self._now()
            while waiting and waiting[0][0] <= now:
                lane = heapq.heappop(waiting)[2]
                heapq.heappush(ready, (-len(lane.queue) * self._pacer.hosts[lane.host].interval, next(order), lane))
            if not ready:
                due_at, _, lane = waiting[0]
                pace = self._pacer.hosts[lane.host]
                self._waits_for = lane.host, pace.why if pace.not_before > now else "its pace"
                self._nap(due_at)
                continue
            lane = heapq.heappop(ready)[2]
            if lane.steps is None:
                lane.steps = self._target(*lane.queue.popleft(), lane.since, *how)
            said = self._step(lane.steps)
            if isinstance(said, Later):
                if said.host == lane.host:
                    heapq.heappush(waiting, (said.at, next(order), lane))
                    continue
                away = Lane(said.host, lane.steps)      # redirected: no host waits for another
                self._lanes.add(away)
                heapq.heappush(waiting, (said.at, next(order), away))
            lane.steps, lane.since = None, self._now()
            if lane.queue:
                due_at = next_start(self._pacer.hosts[lane.host], MIN_REQUEST_INTERVAL + self._margin, follows_policy=False)
                if self._interactive or due_at - lane.since > self._max_wait:       # at once, to be told that this is too far away
                    due_at = -math.inf
                self._say_wait(lane.queue[0][1], due_at - lane.since, "its host's pace")
                heapq.heappush(waiting, (due_at, next(order), lane))
            else:
                self._lanes.discard(lane)
            if isinstance(said, Result):
                yield said

    def _nap(self, until: float) -> None:
        """Asleep until then, or for so long as a clock can be asked for; whoever wakes looks again."""
        self._clock.sleep(min(max(LEAST_SLEEP_SECONDS, until - self._now()), MAX_SLEEP_SECONDS))

    def _step(self, steps: Steps[T]) -> Later | T:
        """A step further, alone at the door: when to go on, or what came of it."""
        with self._pacer.door:
            try:
                return next(steps)
            except StopIteration as stop:
                return stop.value       # type: ignore[no-any-return]

    def _drive(self, steps: Steps[T]) -> T:
        """Steps to their end, sleeping between them with nothing held."""
        while isinstance(said := self._step(steps), Later):
            self._waits_for = "", said.reason
            self._nap(said.at)
        return said

    # --- One target -------------------------------------------------------

    def _target(self, url: str, wire: str, key: str, since: float, min_age: float, wants: Wants | None, kind: str) -> Steps[Result]:
        """A declared target, from its line in the list to its Result. No exception of one target reaches another."""
        try:
            known = from_entry(KnownSource(), None if wants else self._shelf.load("source", key))       # who wants a body sends no validators
            age, now = self._time() - known.at, self._now()
            if 0.0 <= age < min_age:
                return self._unasked("skipped", url, f"fetched {spell_seconds(age)} ago; R8 asks it again after {spell_seconds(min_age)}",
                                     known.at + min_age)
            visit = Visit(kind, url, wire, now, Validators(known.etag, known.last_modified), known.wire)
            visit.wants, visit.waited = wants or wants_body, max(0.0, now - since)
            result = self._conclude(visit, (yield from self._carry(visit)))
            if result.ok:       # R7, R8
                self._shelf.store("source", key, KnownSource(result.at, visit.at, result.etag, result.last_modified)._asdict())
            return result
        except Exception as error:  # noqa: BLE001 - ours: a bug, or memory that ran out, costs one target
            self._warn(f"unexpected {type(error).__name__} at {mask_credentials(url)}: {error}")
            return self._unasked("failed", url, f"unexpected {type(error).__name__}: {error}")

    def _carry(self, visit: Visit) -> Steps[Answer]:
        """A URL to its end: every gate before every request, whether that is the first, a retry or a hop of a redirect."""
        try:
            while True:
                decision = yield from self._pass(visit, GATES_OF[visit.kind])
                if not decision:
                    return decision
                answer = self._exchange(visit)
                if isinstance(answer, TransportError) and answer.refused:
                    return visit.decision._replace(allowed=False, gate="address", reason=answer.reason)
                if not self._goes_on(visit, answer):
                    return answer
        finally:
            visit.lock.release()

    def _pass(self, visit: Visit, gates: Sequence[Gate]) -> Steps[Decision]:
        """spec 7: blocklist, (address,) robots.txt, throttle, in this order; the first that refuses ends it.

        After each wait every gate is asked again: an opt-out may have come meanwhile.
        """
        while True:
            for gate in gates:
                said = gate(self, visit)
                if said is not None:
                    break
            else:
                return visit.decision
            if isinstance(said, Decision):
                return said._replace(url=visit.url)     # not that of a policy document
            before = self._now()
            if not said.host:       # else the document that it waits for has said so
                self._say_wait(visit.at, said.at - before, said.reason)
            yield said._replace(host=visit.host)
            visit.waited += self._now() - before

    def _goes_on(self, visit: Visit, answer: Reply) -> bool:
        """Whether there is another request to be made for this visit: a hop, or a retry."""
        if isinstance(answer, TransportError):
            limit = 0 if visit.is_cut_off or answer.final else KINDS[visit.kind].transport_retries
            return self._retries(visit, limit, None, answer.reason)
        if answer.status in REDIRECT_STATUSES:
            return self._is_redirected(visit, answer)
        if answer.status in BACKOFF_STATUSES:       # R5
            retry_after = max((seconds for name, value in answer.headers if name == "retry-after"
                               and (seconds := parse_retry_after(value, self._time())) is not None), default=None)
            return self._retries(visit, DEFAULT_MAX_RETRIES, retry_after, f"{visit.host} answered {answer.status}")
        return False

    def _retries(self, visit: Visit, limit: int, retry_after: float | None, why: str) -> bool:
        """R5: holds the host back, and says whether this visit tries again in this run."""
        is_last = visit.retries >= limit
        if self._interactive or is_last and limit < DEFAULT_MAX_RETRIES:     # a policy document that no network reached holds nobody back
            return False
        delay = max(HOLD_AFTER_LAST_RETRY_SECONDS, retry_after or 0.0) if is_last else backoff_delay(visit.retries, retry_after, self._rand)
        delay, now = min(delay, MAX_HOLD_SECONDS), self._now()
        held = merge_paces(self._pace(visit.host, now), HostPace(not_before=now + delay, why=why), now)
        self._keep_pace(visit.host, held, now, "hold")      # for every run and process. An entry of its own: no claim of a slot overwrites it
        if not is_last and delay <= self._max_wait:
            visit.retries += 1
            return True
        visit.retry_at = self._time() + delay
        visit.trouble = f"{why}; " + (f"gave up after {visit.retries} retries" if is_last else f"the next try would be in {spell_seconds(delay)}")
        return False

    def _is_redirected(self, visit: Visit, answer: Response) -> bool:
        """A hop is a new URL: it goes through every gate. (spec 19, C6)"""
        location, limit = header_value(answer.headers, "location"), KINDS[visit.kind].max_redirects
        with suppress(UnicodeError):        # headers come as latin-1; what servers mean beyond ASCII is UTF-8
            location = location.encode("latin-1").decode("utf-8")
        if not location or len(visit.redirects) >= limit:
            visit.trouble = f"more than {limit} redirects" if location else f"{answer.status} without a Location"
            return False
        if self._tag:       # the gates never see R13's parameters, also where a server repeats them
            own = tag_url("", *self._tag)[1:]
            for tags in own, own.replace("%2F", "/"), own.replace("/", "%2F"):
                location = location.replace(f"?{tags}&", "?").replace(f"?{tags}", "").replace(f"&{tags}", "")
        try:
            target = wire_url(resolve_url(visit.at, location))
            if visit.kind in CANONICAL_KINDS and not is_kin(split_url(self.origin).host, target):
                raise ValueError(f"{printable(target)} is not https on the host of {self.origin}")
        except ValueError as error:
            visit.trouble, visit.has_strayed = f"redirect refused: {error}", True
            return False
        visit.redirects.append(target)
        visit.move(target)
        return True

    def _obtain(self, kind: str, url: str, validators: Validators = NO_VALIDATORS) -> Steps[tuple[Visit, Answer]]:
        """A policy document, behind the gates of its kind."""
        visit = Visit(kind, url, url, self._now(), validators)
        return visit, (yield from self._carry(visit))

    # --- R1: the one door -------------------------------------------------

    def _exchange(self, visit: Visit) -> Reply:
        """The only caller of the transport. The gates have just passed; the host's slot is ours."""
        visit.has_left, url = self._counts_tries, visit.at
        if self._tag and visit.host == host_key(self.origin):       # R13: at transmission, after the gates
            url = tag_url(url, *self._tag)
        robots2 = self._robots2_of(visit.site)
        is_announced = visit.kind == "ask" or robots2 is not None and robots2.policy.get("announce") == "yes"
        headers = request_headers(visit.kind, visit.validators, self._identity if is_announced else "")
        request = Request("HEAD" if visit.kind == "ask" else "GET", url, headers,
                          self._timeout, MAX_BYTES_OF.get(visit.kind, self._max_bytes), visit.wants, lambda: self._departed(visit))
        if self._trace:
            self._trace(f"{request.method} {printable(url)}")
        answer: Reply
        try:
            answer = as_response(self._transport.send(request))
        except TransportError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - a transport's bug is no answer either
            answer = TransportError(f"unexpected {type(error).__name__}: {printable(str(error))}")
        finally:
            visit.lock.release()
            visit.slot = -math.inf      # spent: a retry claims its own (R4), and asks again (robots2)
            visit.answers, visit.waits = {}, 0
            visit.attempts += visit.has_left
            self.requests += visit.has_left
        return answer

    def _departed(self, visit: Visit) -> None:
        """The request has left: the server counts from here, and so do we."""
        visit.has_left, now = True, self._now()
        if now - visit.slot > SLOT_TOLERANCE_SECONDS:
            self._start(visit, self._pace(visit.host, now), now)
        visit.lock.release()

    # --- R3: the blocklist ------------------------------------------------

    def _blocklist_gate(self, visit: Visit) -> Said:
        """R3, first of all. The canonical documents themselves stay reachable, or no list could ever be mended."""
        if visit.kind in CANONICAL_KINDS:
            return None
        if (visit.waits or self._blocklist is None) and self._is_shared:        # another process may have adopted one meanwhile
            self._load_blocklist()
        if not self._is_list_current() and not (visit.waits > 1 and self._blocklist is not None):
            said = self._errand(visit, "blocklist", self._load_blocklist, self._refresh_blocklist)
            if isinstance(said, Later):
                return said
            if said is not None:        # whoever refreshes it has stopped, and holds the lock
                self._blocklist_failed(said.reason, None)
        entry = self._blocklist.blocks(visit.host) if self._blocklist is not None else None
        if entry is None:
            return None
        said_why = (entry.added and f", {entry.added}") + (entry.reason and f" ({entry.reason})")
        return Decision(False, visit.url, "R3", f"{visit.host}: operator blocklist entry {entry.domain}{said_why}", blocked_by=entry)

    def _is_list_current(self) -> bool:
        held, now = self._refresh, self._time()
        return is_fresh(held.failed_at, held.retry_at - held.failed_at, now) or (
            self._blocklist is not None and is_fresh(held.checked_at, self._blocklist.refresh_seconds, now))

    def _load_blocklist(self) -> bool:
        """The newest generation that the shelf holds whole, and when it was last asked about; whether that is current."""
        held, latest = self._refresh, self._shelf.load("refresh", self.origin) or {}
        asked = from_entry(held, latest)
        if self._blocklist is None or serial_of(latest) > held.serial:
            entries = [self._shelf.load("blocklist", f"{self.origin} {generation}") or {} for generation in (0, 1)]
            for entry in sorted(entries, key=serial_of, reverse=True):
                if serial_of(entry) > held.serial:      # the older only where the newer does not hold
                    try:
                        self._blocklist, held = Blocklist(entry["columns"]), RefreshState(serial_of(entry))
                    except (KeyError, ValueError) as error:
                        self._warn(f"blocklist: a copy in the cache does not hold: {error}")
        if self._blocklist is not None:     # while nothing was ever held, every process tries for itself
            is_of_this = serial_of(latest) == held.serial       # of another generation it says nothing but when to ask again
            self._refresh = asked if is_of_this else held._replace(failed_at=asked.failed_at, retry_at=asked.retry_at)
        return self._is_list_current()

    def _note_blocklist(self, **changes: Any) -> None:
        """When the list was asked about, for this process and the others."""
        self._refresh = self._refresh._replace(**changes)
        if self._blocklist is not None:
            self._shelf.store("refresh", self.origin, self._refresh._asdict())

    def _refresh_blocklist(self) -> Steps[None]:
        """R3b, R3c, R10: asks for the document, and adopts it only if it holds. Whatever else happens, the last list stays."""
        held = self._refresh
        visit, answer = yield from self._obtain("blocklist", self.origin + BLOCKLIST_PATH, Validators(held.etag, held.last_modified))
        news: dict[str, Any] = {"checked_at": self._time(), "failed_at": -math.inf, "retry_at": -math.inf}
        self.blocklist_status = getattr(answer, "status", 0)
        if self.blocklist_status != 304 or not any(visit.validators):
            try:
                answer, schema = whole(visit, answer), None
                document = parse_json(answer.body, "blocklist")
                if isinstance(document, dict) and not isinstance(document.get("schema"), dict):
                    schema = yield from self._standalone_schema()
                adopted = self._blocklist = Blocklist.from_document(document, schema)
            except ValueError as error:
                self._blocklist_failed(str(error), visit.retry_at)
                return
            for line in adopted.warnings:
                self._warn(f"blocklist: {line}")
            # Two generations lie on disk, and the older is overwritten: at every instant one is whole. The next serial is of the other
            # parity, and of this time: a process that starts from an emptied folder must not give its list a serial that another has.
            news["serial"] = serial = held.serial + 1 + 2 * max(0.0, (self._time() - held.serial) // 2)
            self._shelf.store("blocklist", f"{self.origin} {serial % 2:g}", {"serial": serial, "columns": adopted.to_columns()}, durable=True)
            news.update((NO_VALIDATORS if visit.redirects else validators_of(answer.headers))._asdict())
        self._note_blocklist(**news)

    def _blocklist_failed(self, reason: str, retry_at: float | None) -> None:
        """R3b: the last list stays in force; the next try is soon. Without a list the gate is open, and says so."""
        now = self._time()
        self._note_blocklist(failed_at=now, retry_at=max(retry_at or 0.0, now + POLICY_RETRY_SECONDS))
        self._warn(f"blocklist: {reason}; " + (
            "none was ever adopted, so nothing is blocked yet (R3b: the first failure opens)" if self._blocklist is None else
            f"the list of {self.blocklist_size} entries that is held stays in force (R3b)"))

    def _standalone_schema(self) -> Steps[Any]:
        """R10: the schema of a document that carries none: cached seven days, kept stale on failure, None where there is none at all."""
        held = self._shelf.load("schema", self.origin) or {}
        body, checked_at = held.get("body"), as_number(held.get("checked_at"))
        if not (isinstance(body, bytes) and is_fresh(checked_at, SCHEMA_TTL_SECONDS, self._time())):
            visit, answer = yield from self._obtain("schema", self.origin + SCHEMA_PATH)
            try:
                news = whole(visit, answer).body
                document = parse_json(news, "schema")
                compile_schema(document)        # one that does not compile must not displace one that does
                if not isinstance(document, dict):
                    raise UnsupportedSchema("it is no object")
                self._shelf.store("schema", self.origin, {"body": news, "checked_at": self._time()}, durable=True)
                body = news
            except ValueError as error:
                if not isinstance(body, bytes):
                    return None
                self._warn(f"schema: {error}; the one of {iso_utc(checked_at)} is used (R10)")
        return parse_json(body, "schema in the cache")

    # --- The address check, between R3 and R2 -----------------------------

    def _address_gate(self, visit: Visit) -> Decision | None:
        """Nothing is sent to an address that is not public."""
        if self._allow_private:
            return None
        reason = visit.refusal
        if not reason and hasattr(self._transport, "resolve"):
            try:
                self._transport.resolve(visit.at, self._timeout)
            except TransportError as error:
                reason = error.reason if error.refused else ""      # a name that does not exist fails later, by itself
            except Exception as error:  # noqa: BLE001 - a transport's bug: what cannot be checked is not asked
                reason = f"the address cannot be checked: unexpected {type(error).__name__}"
        return Decision(False, visit.url, "address", reason) if reason else None

    # --- R2: robots.txt; and robots2.txt, which is kept in the same way ---

    def _robots_gate(self, visit: Visit) -> Said:
        """R2: robots.txt before any target of its site."""
        if self._robots_mode == "ignore":
            visit.decision = Decision(True, visit.url, verdict=Verdict.SKIPPED_BY_USER_POLICY, reason="robots_mode='ignore'")
            return None
        if (said := self._ensure_rules(visit, "robots")) is not None:
            return said
        state = self._rules.get(visit.site, NO_RULES)
        decision = robots_decision(visit.url, path_and_query(visit.at), state, self._time(), self._unreachable)
        visit.is_cut_off = state.no_network
        if self._robots_mode == "report_only":
            decision = decision._replace(allowed=True, gate=None, retry_at=None)
        if not decision.allowed:
            return decision
        if decision.verdict is Verdict.UNKNOWN_PARSE_ERROR and PARSE_ERROR_WARNING not in visit.warnings:
            visit.warnings.append(PARSE_ERROR_WARNING)
        visit.decision = decision
        return None

    def _robots2_of(self, site: str) -> Robots2 | None:
        return self._rules.get(f"{site} {self._category}", NO_RULES).robots2 if self._category else None

    def _ensure_rules(self, visit: Visit, kind: str) -> Said:
        """R12: what is held of the site's robots.txt or robots2.txt is current, or asked for first."""
        key = visit.site if kind == "robots" else f"{visit.site} {self._category}"
        state = self._rules.get(key)
        if state is not None and (visit.waits > 1 or robots_is_current(state, self._time())):
            return None
        return self._errand(visit, f"robots {key}", lambda: self._load_rules(key),
                            lambda: self._refresh_rules(key, kind, f"{site_of(visit.at)}/{kind}.txt"))

    def _load_rules(self, key: str) -> bool:
        if entry := self._shelf.load("robots", key):
            self._keep_rules(key, robots_from_entry(entry))
        return robots_is_current(self._rules.get(key, NO_RULES), self._time())

    def _keep_rules(self, key: str, state: RobotsState) -> None:
        """In memory the most recently learned, up to a bound; the shelf has the rest."""
        self._rules_bytes += size_of(state) - size_of(self._rules.pop(key, NO_RULES))
        self._rules[key] = state._replace(robots2=self._merged(state.files)[0]) if state.files else state
        while self._rules_bytes > MAX_ROBOTS_IN_MEMORY_BYTES and len(self._rules) > 1:
            self._rules_bytes -= size_of(self._rules.popitem(last=False)[1])

    def _refresh_rules(self, key: str, kind: str, url: str) -> Steps[Decision | None]:
        """R2: asks for the file. What it says, or that it could not be had, is kept for this run and the next."""
        held = self._rules.get(key, NO_RULES)
        visit, answer = yield from self._obtain(kind, url, held.validators if held.robots else NO_VALIDATORS)
        now, files = self._time(), held.files
        if isinstance(answer, Decision) and (answer.retry_at is not None or kind == "robots" and answer.gate == "address" and not visit.redirects):
            return answer       # the host is held back, or must not be asked
        if isinstance(answer, Response) and not visit.has_strayed and (kind == "robots" or answer.status != 304):
            state = robots_after_answer(held, answer, now)
        else:       # a gate that refuses the file, or a hop of it, is no answer either
            state = robots_after_failure(held, f"{kind}.txt: {no_document(visit.trouble, answer)}", getattr(answer, "status", 0), now)
        if visit.redirects:         # validators belong to the URL that gave them
            state = state._replace(validators=NO_VALIDATORS)
        retry_at = max(state.retry_at, visit.retry_at or 0.0)       # Retry-After or the last retry binds the host, and so its robots.txt
        if kind == "robots2":
            if robots_undefined_for_good(state, now):
                files = {}
            if not state.unreachable_since:
                files = {url: state.body} if state.robots else {}
                if files and not (yield from self._chain_of(files, held.files)):
                    retry_at = now + POLICY_RETRY_SECONDS
            state = state._replace(robots=None, body=b"")       # the files have it
        state = state._replace(files=files, robots2=None, retry_at=retry_at)
        self._keep_rules(key, state)
        self._shelf.store("robots", key, robots_to_entry(state))
        return None

    # --- robots2.txt, opt-in ----------------------------------------------

    def may(self, url: str, directive: str) -> Decision:
        """What the site's robots2.txt answers to a use of `url`: "summarise", "quote", "derivative", "train", "store" …

        True only where it says yes, or was asked and allows it. `.reason` begins with the stance in the text's words: "yes", "no", "ask",
        "short-only", "session-only" …, or "unstated" where the site says nothing. ValueError: not a directive of robots2, or robots2 is off.
        """
        if not self._category:
            raise ValueError("robots2 is off, want Bot(robots2=True)")
        robots2_stance({}, directive)

        def use_gate(bot: Bot, visit: Visit) -> Later | Decision:
            if (said := self._ensure_rules(visit, "robots2")) is not None:
                return said
            robots2 = self._robots2_of(visit.site)
            stance = robots2_stance(robots2.policy, directive) if robots2 is not None else "unstated"
            if stance == "ask":
                return self._ask(visit, directive, "ask")
            permitted = stance in ("yes", "none", "preferred")
            return visit.decision._replace(allowed=permitted, gate=None if permitted else "robots2",
                                           reason=f"{stance}: robots2.txt on {directive}")

        return self._decide(url, (*TARGET_GATES[:3], use_gate))       # what robots2.txt can only narrow

    def _robots2_gate(self, visit: Visit) -> Said:
        """robots2.txt can only narrow what the other gates allow; without the option nothing of it is asked for."""
        if not self._category:
            return None
        said = self._ensure_rules(visit, "robots2")
        robots2 = self._robots2_of(visit.site)
        if said is not None or robots2 is None:
            return said
        ruling = robots2_gate(robots2, path_and_query(visit.at))
        if ruling.decision == "denied":
            return visit.decision._replace(allowed=False, gate="robots2", reason=ruling.reason, rule=ruling.rule or visit.decision.rule)
        answers = (self._ask(visit, directive, f"asked for {directive}") for directive in ruling.ask)
        return next((answer for answer in answers if isinstance(answer, Later) or not answer), None)

    def _merged(self, files: dict[str, bytes]) -> tuple[Robots2, str | None]:
        """The files of a chain, the site's own first, as one; and the URL to read next."""
        return robots2_chain([(url, Robots2.parse(body, self._category)) for url, body in files.items()])

    def _chain_of(self, files: dict[str, bytes], held: dict[str, bytes]) -> Steps[bool]:
        """Adds at most three further files, each behind every gate. Whether none was out of reach: of such a one the `held` copy stays."""
        is_whole = True
        while True:
            chain = self._merged(files)[1] or ""
            try:
                wire = wire_url(chain)
                if canonical_url(wire) in map(canonical_url, files):       # a loop in another spelling
                    return is_whole
            except ValueError:      # the end, or no URL
                return is_whole
            _, answer = yield from self._obtain("robots2", wire)
            if isinstance(answer, Response) and answer.status == 200:
                files[chain] = answer.body[:MAX_CHAINED_BYTES]
                continue
            is_gone = isinstance(answer, Response) and answer.status != 304 and robots_meaning(answer.status) in ("rules", "none")
            is_whole &= is_gone
            if is_gone or chain not in held:
                return is_whole
            files[chain] = held[chain]

    def _ask(self, visit: Visit, directive: str, words: str) -> Later | Decision:
        """The ask protocol: an answer on file that still holds, else HEAD, itself behind blocklist, robots.txt and pace."""
        key = f"{visit.site} {directive} {self._category}"

        def load() -> bool:
            entry, now = self._shelf.load("ask", key) or {}, self._time()
            decision, scopes, at = entry.get("decision"), entry.get("scopes"), as_number(entry.get("at"))
            if is_fresh(at, ROBOTS2_ASK_TTL_SECONDS, now) and decision in ("allow", "deny") and isinstance(scopes, list):
                said_so = f"answered {decision} {spell_seconds(now - at)} ago"
                visit.answers[directive] = AskAnswer(decision, tuple(map(as_text, scopes)), said_so)
            return directive in visit.answers

        def ask() -> Steps[None]:
            asking, answer = yield from self._obtain("ask", wire_url(robots2_ask_url(visit.at, directive)))
            visit.retry_at = getattr(answer, "retry_at", asking.retry_at)       # read only where it is "later"
            if isinstance(answer, Response):
                said = parse_ask_answer(answer.status, answer.headers)
            else:
                said = AskAnswer("deny" if visit.retry_at is None else "later", reason=f"cannot be asked: {answer.reason}")
            if said.cacheable:
                self._shelf.store("ask", key, {"decision": said.decision, "scopes": list(said.scopes), "at": self._time()})
            visit.answers[directive] = said

        if directive not in visit.answers and (waits := self._errand(visit, f"ask {key}", load, ask)) is not None:
            return waits
        answer = visit.answers[directive]
        permitted = ask_permits(answer, path_and_query(visit.at))
        beside = "" if permitted or answer.decision in ("deny", "later") else ", not for this path"
        return visit.decision._replace(
            allowed=permitted, gate=None if permitted else "robots2", reason=f"{words}: {answer.reason}{beside}",
            retry_at=(visit.retry_at or self._time() + POLICY_RETRY_SECONDS) if answer.decision == "later" else None)

    # --- Errands: documents that several visits, or processes, wait for ---

    def _errand(self, visit: Visit, name: str, load: Callable[[], bool], make: Callable[[], Steps[Decision | None]]) -> Said:
        """R12: a step towards a document that is current again: when to come back, why it cannot be had now, or None where it is here.

        One refresh serves all who wait; between two requests nothing is held. `load` takes what another process left, and says
        whether that will do.
        """
        steps, later = self._errands.get(name, (None, None))
        if later and later.at > self._now():
            return later
        lock = self._lock(visit, f"refresh {name}", "R3" if name == "blocklist" else "R2", f"another process refreshes {name}")
        if not isinstance(lock, ShelfLock):
            return lock
        with lock:
            self._errands.pop(name, None)
            if load():
                return None
            steps = steps or make()
            said = self._step(steps)
            if isinstance(said, Later):
                self._errands[name] = steps, said
        return said

    def _lock(self, visit: Visit, name: str, gate: str, why: str) -> ShelfLock | Later | Decision:
        """The lock of that name; or, where another process holds it, when to look again, though not for ever."""
        lock, now = self._shelf.try_lock(name), self._now()
        visit.patient_until = 0.0 if lock is not None else visit.patient_until or now + 2 * self._timeout   # nobody who lives holds one for longer
        later = Later(now + LOCK_POLL_SECONDS, gate, why)
        return lock or (later if now <= visit.patient_until else self._not_yet(visit, later))

    # --- R4, R5: the pace -------------------------------------------------

    def _throttle_gate(self, visit: Visit) -> Said:
        """R4: claims the host's next slot; passes when it is due.

        The host's lock is kept from here until the request has left (`_departed`), so that no other process starts meanwhile.
        """
        if self._interactive:       # spec 1.1
            return None
        now, host = self._now(), visit.host
        if self._is_shared:         # within this process the door is lock enough
            lock = self._lock(visit, f"host {host}", "R4", f"another process is at {host}")
            if not isinstance(lock, ShelfLock):
                return lock
            visit.lock = lock
        pace, interval = self._pace(host, now), self._interval(visit.site) + self._margin
        visit.interval = interval
        is_first = not visit.retries and not visit.redirects
        is_first_of_policy = is_first and visit.kind in SLOTLESS_KINDS and visit.at not in self._pacer.asked
        visit.is_slotless = is_first_of_policy and pace.last_at == -math.inf
        if visit.is_slotless:       # of the blocklist: what came before was another's
            start = max(pace.not_before, pace.policy_at + interval) if visit.kind == "blocklist" else pace.not_before
        elif visit.slot > -math.inf:        # our place in the queue; a request that left late pushes all behind it
            start = max(visit.slot, pace.not_before, pace.departed_at + interval)
        else:
            start = next_start(pace, interval, follows_policy=visit.kind != "target" or not is_first)
        if start <= now:
            visit.slot = now
            if is_first_of_policy:
                self._pacer.asked.add(visit.at)
            self._start(visit, pace, now)
            return None
        later = Later(start, "R5", pace.why) if start == pace.not_before else Later(
            start, "R4", f"{spell_seconds(interval - self._margin)} between requests to {host}")
        if start - now > self._max_wait:
            return self._not_yet(visit, later)
        visit.slot = start
        visit.waits += 1
        self._keep_pace(host, pace._replace(last_at=max(start, pace.last_at), interval=interval), now)
        visit.lock.release()
        return later

    def _start(self, visit: Visit, pace: HostPace, now: float) -> None:
        """A request starts."""
        self._keep_pace(visit.host, pace._replace(policy_at=now) if visit.is_slotless else pace._replace(
            last_at=max(pace.last_at, now), interval=visit.interval, departed_at=now), now)

    def _not_yet(self, visit: Visit, later: Later) -> Decision:
        seconds = max(0.0, later.at - self._now())
        return visit.decision._replace(allowed=False, gate=later.gate, reason=f"not before {spell_seconds(seconds)} from now: {later.reason}",
                                       retry_at=self._time() + seconds)

    def _interval(self, site: str) -> float:
        """Seconds between two requests. R4, R2d, and the `rate` of robots2: the largest."""
        robots, robots2 = self._rules.get(site, NO_RULES).robots, self._robots2_of(site)
        return max(MIN_REQUEST_INTERVAL, robots and robots.crawl_delay or 0.0, robots2 and robots2.rate_interval or 0.0)

    def _pace(self, host: str, now: float) -> HostPace:
        """What this process knows of a host, and what another has written since."""
        pace = self._pacer.hosts[host]
        for kind in ("host", "hold") if self._is_shared else ():
            entry = self._shelf.load(kind, host)
            if entry and entry != self._pacer.on_disk.get((kind, host)):        # our own words: the monotonic clock knows them better
                pace = merge_paces(pace, shifted(from_entry(UNSEEN_HOST, entry), now - self._time()), now)
        return pace

    def _keep_pace(self, host: str, pace: HostPace, now: float, kind: str = "host") -> None:
        """For this process, and for those that share the cache."""
        self._pacer.hosts[host] = pace
        if self._is_shared:
            told = pace if kind == "host" else HostPace(not_before=pace.not_before, why=pace.why)
            entry = self._pacer.on_disk[kind, host] = shifted(told, self._time() - now)._asdict()
            if not self._shelf.store(kind, host, entry):
                self._shelf.forget(kind, host)          # the pacer knows it; what others write must stay visible

    # --- What came of it --------------------------------------------------

    def _conclude(self, visit: Visit, answer: Answer) -> Result:
        """The outcome of a target, and why."""
        if isinstance(answer, Decision):
            visit.decision = answer
            return self._result(visit, "denied" if answer.retry_at is None else "deferred")
        if isinstance(answer, TransportError):
            seen, trouble = {}, answer.reason
        else:
            seen = {"status": answer.status, "content_type": header_value(answer.headers, "content-type")}
            trouble = f"the server answered {answer.status}"
            if 200 <= answer.status < 300 or answer.status == 304 and any(visit.validators):
                if not answer.truncated:
                    return self._read(visit, answer, seen)
                trouble = f"more than {self._max_bytes} bytes"
        # Put off: Retry-After or the back-off goes beyond max_wait.
        is_put_off = visit.retry_at is not None and visit.retries < DEFAULT_MAX_RETRIES
        gate = "R5" if is_put_off or seen and visit.retry_at is not None else None
        return self._result(visit, "deferred" if is_put_off else "failed", gate=gate, reason=visit.trouble or trouble,
                            retry_at=visit.retry_at, **seen)

    def _read(self, visit: Visit, answer: Response, seen: dict[str, Any]) -> Result:
        """A success, as metadata (R6): what it is called, what it links to in its structured forms (R9), what it asks of us."""
        content_type = seen["content_type"]
        media_type, kind, is_unread = media_of(content_type)
        body, warnings, etag, last_modified = answer.body, visit.warnings, *validators_of(answer.headers)
        if is_unread and not visit.wants(answer.status, answer.headers):
            body, warnings = b"", [*warnings, f"{media_type} is not read (R6)"]
        reading = read_metadata(body, kind, content_type, visit.at)
        directives, cautions = robots_directives(answer.headers, reading.page, self._time())
        seen.update(robots_directives=directives, warnings=warnings + reading.warnings + cautions)
        if answer.status == 304:
            return self._result(visit, "unchanged", reason="not modified", etag=etag or visit.validators.etag,
                                last_modified=last_modified or visit.validators.last_modified, **seen)
        return self._result(visit, "fetched", bytes=len(body), sha256=sha256_hex(body), etag=etag, last_modified=last_modified,
                            title=reading.title, links=reading.links, metadata=reading.metadata, body=body, **seen)

    def _result(self, visit: Visit, outcome: str, **fields: Any) -> Result:
        """A Result with all that is the same for every outcome."""
        common = {**visit.decision._asdict(), "url": visit.url, "final_url": visit.at, "redirects": visit.redirects, "attempts": visit.attempts,
                  "waited": visit.waited, "elapsed": self._now() - visit.started_at, "at": self._time(), "warnings": visit.warnings, **fields}
        del common["allowed"], common["blocked_by"]
        return Result(outcome, **common)

    def _unasked(self, outcome: str, url: str, reason: str, retry_at: float | None = None) -> Result:
        """A Result that no gate was asked for."""
        return Result(outcome, mask_credentials(str(url)), reason=reason, at=self._time(), retry_at=retry_at)

    def explain(self, decision: Decision) -> Iterator[tuple[str, str]]:
        """Each gate in order, with what decided it: (gate, what it said)."""
        gate, reason, now = decision.gate, decision.reason, self._now()
        listed = "no list was ever adopted" if self._blocklist is None else (
            f"among {self.blocklist_size}, checked {spell_seconds(self._time() - self._refresh.checked_at)} ago")
        yield "blocklist", reason if gate == "R3" else f"not listed ({listed})"
        if gate != "R3":
            yield "address", reason if gate == "address" else "permitted" if self._allow_private else "public, as far as known"
        if gate in ("R3", "address"):
            return
        group = f", group {decision.group}" if decision.group else ""
        yield "robots.txt", f"{decision.verdict or 'unknown'}{group}" + ("" if gate in ("robots2", "R4", "R5") else f": {reason}")
        if decision.robots_source:
            yield "source", decision.robots_source
        wire = wire_url(decision.url)
        if gate == "robots2":
            yield "robots2", reason
        robots2 = self._robots2_of(site_key(wire)) if decision.verdict else None
        if robots2 is not None:
            policy = {**robots2.policy, **robots2.signals, "report-to": ", ".join(robots2.report_to) or "nobody"}
            yield "robots2", ", ".join(f"{name}: {value}" for name, value in policy.items())
            for line in robots2.unknown[:10]:
                yield "robots2", f"line {line.line} is not understood and grants nothing: {line.name}: {line.value}"
        if decision:
            interval, pace = self._interval(site_key(wire)), self._pace(host_key(wire), now)
            start = next_start(pace, interval + self._margin, False)
            held = f" ({pace.why})" if start == pace.not_before else ""
            slot = f"next slot in {spell_seconds(start - now)}{held}" if start > now else "a slot is free now"
            yield "pace", f"{interval:g} s between requests; {slot}"
        if decision.content_signals:
            signals = ", ".join(f"{name}={value}" for name, value in decision.content_signals.items())
            yield "signals", f"{signals} (binds no use that this bot makes)"

    # --- Voices -----------------------------------------------------------

    def _warn(self, line: str) -> None:
        """What concerns the run, once."""
        if line not in self._said and len(self._said) < MAX_WARNINGS:
            self._said.add(line)
            self._tell(line)

    def _say_wait(self, url: str, seconds: float, why: str) -> None:
        if self._trace and seconds > LOCK_POLL_SECONDS:
            self._trace(f"{printable(url)}: waits {spell_seconds(seconds)}: {why}")


# spec 7, normative: R3, R2, R4 in this order. The address check is ours; robots2 can only narrow.
TARGET_GATES: tuple[Gate, ...] = (Bot._blocklist_gate, Bot._address_gate, Bot._robots_gate, Bot._robots2_gate, Bot._throttle_gate)
ROBOTS2_GATES = (Bot._blocklist_gate, Bot._address_gate, Bot._robots_gate, Bot._throttle_gate)
POLICY_GATES = (Bot._blocklist_gate, Bot._address_gate, Bot._throttle_gate)
GATES_OF: dict[str, tuple[Gate, ...]] = {
    **dict.fromkeys(SLOTLESS_KINDS, POLICY_GATES), "target": TARGET_GATES, "fixture": TARGET_GATES, "robots2": ROBOTS2_GATES, "ask": ROBOTS2_GATES}


# === 16. PROOF   spec 12 to 16, 22.1 =====================================
# Owns the publisher on loopback, the checks that it can show, the live fixtures, and the attestation.

class Hit(NamedTuple):
    """One request as the sandbox's server received it."""

    time: float                         # Unix seconds
    monotonic: float
    method: str
    path: str
    headers: dict[str, str]             # lower-case names


class Check(NamedTuple):
    """One line of the self-test. `outcome` is "pass", "fail" or "skip"."""

    clause: str
    check: str
    outcome: str
    observed: str


# --- What the sandbox publishes: {origin} and {crawl_delay} are its own -----------

SANDBOX_SCHEMA = r"""{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "https://wal.sh/.well-known/walsh-research/blocklist.schema.json",
  "type": "object",
  "required": ["contract", "updated", "blocked"],
  "additionalProperties": false,
  "properties": {
    "$schema": {"type": "string"},
    "schema": {"type": "object"},
    "operator": {"type": "string"},
    "contact": {"type": "string"},
    "policy": {"type": "string", "pattern": "^https?://"},
    "contract": {"type": "string", "pattern": "^walsh-research-blocklist/v1(\\.[0-9]+)?$"},
    "updated": {"type": "string", "format": "date-time"},
    "refresh": {"type": "string", "pattern": "^P[0-9A-Z.]+$"},
    "blocked": {"type": "array", "items": {
      "type": "object",
      "required": ["domain"],
      "properties": {"domain": {"type": "string", "minLength": 1}, "added": {"type": "string"}, "reason": {"type": "string"}}}}
  }
}"""

SANDBOX_BLOCKLIST = """{
  "$schema": "{origin}/.well-known/walsh-research/blocklist.schema.json",
  "contract": "walsh-research-blocklist/v1",
  "updated": "2026-05-23T00:00:00Z",
  "operator": "Sandbox",
  "contact": "sandbox@wal.sh",
  "policy": "{origin}/bot/",
  "refresh": "PT6H",
  "blocked": [{"domain": "blocked.test", "added": "2026-05-23", "reason": "sandbox"}]
}"""

SANDBOX_FIXTURES = """{
  "contract": "walsh-research-test-fixtures/v1",
  "updated": "2026-05-23T00:00:00Z",
  "fixtures": {
    "robots_allowed_sentinel": "{origin}/research/bots/dogfood-allow",
    "robots_disallowed": "{origin}/research/bots/dogfood-disallow",
    "walsh_only_allowed": "{origin}/research/bots/dogfood-walsh-only",
    "external_positive": "{origin}/allowed",
    "operator_blocked_host": "blocked.test",
    "flaky_429_endpoint": "{origin}/flaky"
  },
  "notes": {}
}"""

SANDBOX_ROBOTS = """\
User-agent: *
Disallow: /research/bots/dogfood-walsh-only
Disallow: /star-only

User-agent: Walsh-Research
Disallow: /denied
Disallow: /research/bots/dogfood-disallow
Disallow: /wild/*.pdf$
Allow: /wild/open
Allow: /research/bots/dogfood-allow
Allow: /research/bots/dogfood-walsh-only
Crawl-delay: {crawl_delay}
Content-Signal: search=yes, ai-train=no

Sitemap: {origin}/sitemap.xml
"""

SANDBOX_ROBOTS2 = """\
# robots2.txt of the sandbox
# meta: spec-version: 2.0
# meta: chain-id: sandbox
User-agent: *
Disallow: /robots2-denied

crawl: ask
read: yes
quote: short-only
derivative: ask
train: no
rate: 30
announce: yes
honest: yes

[agent: monitoring]
crawl: no

chain: {origin}/robots2-base.txt
"""

SANDBOX_LLMS = """\
# Sandbox

> A publisher.

## Docs

- [Notes](/page.md): all of them
- [Hidden](/denied): robots.txt does not apply here
"""

SANDBOX_PAGE = """\
<!doctype html><html lang=en><head><title>A page</title>
<link rel=alternate type=application/rss+xml href=/feed.xml><link rel=alternate type=application/atom+xml href=/atom.xml></head>
<body><a href='/never'>never</a><img src='/never.png'></body></html>
"""

SANDBOX_PLAIN_PAGES = """
    /bot/ /research/bots/compliance-spec /denied /star-only /wild/open.pdf /wild/a.pdf /page /robots2-denied /robots2-base-denied
    /research/bots/dogfood-allow /research/bots/dogfood-allow.html /research/bots/dogfood-allow.md
    /research/bots/dogfood-disallow /research/bots/dogfood-disallow.html /research/bots/dogfood-disallow.md
    /research/bots/dogfood-walsh-only /research/bots/dogfood-walsh-only.html /research/bots/dogfood-walsh-only.md"""

SANDBOX_TYPES = {".md": "text/markdown; charset=utf-8", ".txt": "text/plain", ".xml": "application/xml", ".json": "application/json",
                 ".gz": "application/gzip", ".png": "image/png"}

SANDBOX_ANSWERS: tuple[tuple[Any, ...], ...] = (        # path, body, then status and headers where they are not 200 and none
    ("/robots.txt", SANDBOX_ROBOTS),
    (BLOCKLIST_PATH, SANDBOX_BLOCKLIST.replace('"blocked":', f'"schema": {SANDBOX_SCHEMA},\n  "blocked":'), 200, {"ETag": '"list-1"'}),
    (SCHEMA_PATH, SANDBOX_SCHEMA),
    (FIXTURES_PATH, SANDBOX_FIXTURES),
    ("/allowed", SANDBOX_PAGE, 200, {"ETag": '"allowed-1"', "Last-Modified": "Sat, 23 May 2026 00:00:00 GMT"}),
    ("/page.md", "# Notes\n\n[One](https://example.org/1) and [two](https://example.org/2), ![no](https://example.org/3)\n"),
    ("/llms.txt", SANDBOX_LLMS),
    ("/feed.xml", "<rss version='2.0'><channel><title>News</title><item><title>First</title><link>/allowed</link></item></channel></rss>"),
    ("/atom.xml", "<feed xmlns='http://www.w3.org/2005/Atom'><entry><id>1</id><title>First</title><link href='/allowed'/></entry></feed>"),
    ("/feed.json", '{"version": "https://jsonfeed.org/version/1.1", "items": [{"id": "1", "url": "/allowed", "title": "First"}]}'),
    ("/sitemap.xml", "<urlset><url><loc>{origin}/allowed</loc></url><url><loc>{origin}/denied</loc></url></urlset>"),
    ("/robots2.txt", SANDBOX_ROBOTS2),
    ("/robots2-base.txt", "User-agent: *\nDisallow: /robots2-base-denied\n"),
    (ROBOTS2_ASK_PATH, "", 200, {"X-Robots2-Decision": "allow", "X-Robots2-Scope": "/allowed"}),
    ("/tagged", SANDBOX_PAGE, 200, {"X-Robots-Tag": "noindex, walsh-research: noai"}),
    ("/picture.png", "PNG"),
    ("/moved", "", 302, {"Location": "/denied"}),
    ("/redirected", "", 302, {"Location": "/allowed"}),
    ("/busy", "", 503),
    ("/flaky", "at last"),
    ("/__state__", "", 200, {"Content-Type": "application/json"}),
)


class Sandbox:
    """A publisher on loopback: the canonical resources, the fixtures, the three canaries and an endpoint for every gate.

    `.origin` is its address, `.hits` one record per request received. `.answers[path] = (status, headers, body)` changes what it says.
    `crawl_delay` is what its robots.txt asks of us, `latency` how long each answer takes, both in seconds.
    """

    def __init__(self, crawl_delay: float = 2.0, latency: float = 0.0) -> None:
        self.crawl_delay, self.latency = crawl_delay, latency
        self.hits: list[Hit] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.origin = ""

    def __enter__(self) -> Self:
        import threading
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        sandbox = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                sandbox._answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """The hits are the log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.publish()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def bot(self, **options: Any) -> Bot:
        """A bot whose world is this publisher: it may speak to loopback, and knows no proxy."""
        return Bot(**{"cache_dir": None, "origin": self.origin, "allow_private": True, "warn": lambda line: None,
                      "transport": Door(allow_private=True, proxies={}), **options})

    def say(self, path: str, text: str = "", status: int = 200, headers: dict[str, str] = NO_FIELDS) -> None:
        """What it answers from now on."""
        text = text.replace("{origin}", self.origin).replace("{crawl_delay}", f"{self.crawl_delay:g}")
        self.answers[path] = status, headers, text.encode()

    def publish(self) -> None:
        """Everything as it is at first."""
        import gzip
        for path in SANDBOX_PLAIN_PAGES.split():
            self.say(path, SANDBOX_PAGE)
        for answer in SANDBOX_ANSWERS:
            self.say(*answer)
        self.answers["/sitemap.xml.gz"] = 200, {}, gzip.compress(self.answers["/sitemap.xml"][2])

    def _answer(self, handler: Any) -> None:
        path = handler.path.partition("?")[0]
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.hits.append(Hit(time.time(), time.monotonic(), handler.command, handler.path, headers))
        time.sleep(self.latency)
        status, out, body = self.answers.get(path, (404, {}, b""))
        if path == "/flaky" and sum(hit.path == path for hit in self.hits) < 3:
            status, out = 429, {"Retry-After": "1"}
        if path == "/__state__":
            import json
            body = json.dumps({"paths": [hit.path for hit in self.hits],
                               "user_agents": sorted({hit.headers.get("user-agent", "") for hit in self.hits})}).encode()
        if status == 200 and headers.get("if-none-match") == out.get("ETag", ""):
            status, body = 304, b""
        content_type = SANDBOX_TYPES.get(os.path.splitext(path)[1], "text/html; charset=utf-8")
        with suppress(OSError):         # the bot has hung up, as it may
            handler.send_response(status)
            for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **out}.items():
                handler.send_header(name, value)
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(body)


class VirtualClock:
    """A clock that sleep moves: what takes hours is shown at once. The sandbox proves the pace itself on the real one."""

    now = 1779494400.0                  # Unix seconds: 23 May 2026

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


# --- The vectors of spec 12 ---------------------------------------------------

VECTOR_SUITES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "robots_group_selection": lambda case: RobotsTxt.parse(case["robots"]).group,
    "robots_path_matching": lambda case: (
        "ALLOW" if RobotsTxt.parse("User-agent: *\n" + "\n".join(case["rules"])).allows(case["path"]) else "DENY"),
    "blocklist_domain": lambda case: Blocklist.from_document(
        {"contract": BLOCKLIST_CONTRACT, "schema": {}, "blocked": [{"domain": case["listed"]}]}).blocks(case["host"]) is not None,
    "canonical_url": lambda case: canonical_url(case["input"]),
    "retry_after": lambda case: parse_retry_after(case["value"], case["now"]),
    "duration_ms": lambda case: parse_duration(case["duration"]) * 1000,
}


def vector_checks(path: str) -> Iterator[Check]:
    """The normative vectors from `vectors.json`, or a word that it is not there."""
    name = "normative vectors"
    try:
        with open(path, "rb") as file:
            suites = parse_json(file.read(), "vectors.json")["suites"]
        for name, run in VECTOR_SUITES.items():
            cases = suites[name]["cases"]
            wrong = [case for case in cases if run(case) != case["expected"]]
            yield Check(str(suites[name]["section"]), name.replace("_", " "), "fail" if wrong else "pass",
                        f"{len(cases) - len(wrong)} of {len(cases)}" + (f"; first wrong: {wrong[0]}" if wrong else ""))
    except OSError:
        yield Check("12", name, "skip", f"no vectors.json beside {os.path.basename(__file__)}")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        yield Check("12", name, "fail", f"vectors.json: {type(error).__name__}: {error}")


# --- The sandbox's checks -----------------------------------------------------

if TYPE_CHECKING:
    Observation = tuple[str, str, bool, str]        # clause, what is checked, whether it holds, what was observed


def sandbox_checks() -> Iterator[Check]:
    """Every clause that a publisher on loopback can show. A check that raises has failed."""
    for scene in SCENES:
        try:
            for clause, check, holds, observed in scene():
                yield Check(clause, check, "pass" if holds else "fail", observed)
        except Exception as error:  # noqa: BLE001
            yield Check(scene.__name__, "scene", "fail", f"{type(error).__name__}: {error}")


def scene_pace() -> Iterator[Observation]:
    """The pace itself, on the real clock: two bots in two threads, at a host with a Crawl-delay and at one that throttles."""
    from concurrent.futures import ThreadPoolExecutor

    def visit(server: Sandbox, *paths: str) -> bool:
        return all(result.ok for result in server.bot().run(server.origin + path for path in paths))

    with Sandbox(latency=0.05) as slow, Sandbox(crawl_delay=0.0, latency=0.05) as flaky, ThreadPoolExecutor() as pool:
        tasks = pool.submit(visit, slow, "/allowed", "/star-only"), pool.submit(visit, flaky, "/flaky")
        came = all(task.result() for task in tasks)
    for clause, check, hits, least in (
            ("R4b", "per-host spacing honors Crawl-delay (>=2s)", slow.hits[2:], 2.0),
            ("R5", "/flaky retried until 200; no retry before Retry-After", flaky.hits[2:], 1.0),
            ("R4", "serial in the process: two threads, two hosts, one connection", sorted(slow.hits + flaky.hits), 0.05)):
        times = [hit.monotonic for hit in hits]
        gaps = list(map(operator.sub, times[1:], times))
        yield clause, check, came and min(gaps) >= least, f"gaps={', '.join(f'{gap:.3f}s' for gap in gaps)}"


def scene_stories() -> Iterator[Observation]:
    """Everything else, on a clock that sleep moves."""
    import tempfile
    with Sandbox(crawl_delay=0.0) as publisher, tempfile.TemporaryDirectory() as folder:
        for clause, check, wanted, *steps in stories(publisher, folder):
            told, reason = tell(publisher, steps)
            holds = told == wanted.split()
            yield clause, check, holds, " ".join(told) + ("" if holds else f", want {wanted}") + (f"; {reason}" if reason else "")
        agents = {hit.headers.get("user-agent", "absent") for hit in publisher.hits}
        yield "R1", "exact UA on every request", agents == {USER_AGENT}, ", ".join(sorted(agents))


def tell(publisher: Sandbox, steps: Sequence[Any]) -> tuple[list[str], str]:
    """A story from its start: in words requests, seconds waited, what becomes of each target; and the last reason.

    A step is a target to fetch; a number, seconds that pass; a tuple, what the publisher says from now on; a dict, another bot's options;
    or a function of the bot that gives what is to be observed.
    """
    clock, words, reason = VirtualClock(), [], ""
    publisher.publish()
    for step in ({}, *steps):
        before, after = len(publisher.hits), []
        if isinstance(step, dict):
            bot = publisher.bot(**{"clock": clock, "rand": lambda: 0.0, **step})
        elif isinstance(step, tuple):
            publisher.say(*step)
        elif isinstance(step, str):
            result = bot.fetch(resolve_url(publisher.origin, step))
            after = [f"{result.waited:.0f}s"] * bool(result.waited) + [result.outcome + (f":{result.gate}" if result.gate else "")]
            reason = result.reason
        elif callable(step):
            after = " ".join(map(str, step(bot))).split()
        else:
            clock.now += step
        for hit in publisher.hits[before:]:
            page, mark, query = hit.path.partition("?")
            identity = hit.headers.get("x-agent-identity", "").replace(ROBOTS2_IDENTITY, "+id")
            words += ["HEAD"] * (hit.method == "HEAD") + [page.rpartition("/")[2] + mark + query + identity]
        words += after
    return words, reason


def stories(publisher: Sandbox, folder: str) -> Iterable[Sequence[Any]]:
    """Each a row: clause, what is checked, the story as it is to be told, its steps.

    "blocklist.json robots.txt moved denied:R2" tells of three requests in this order, and of the outcome by which gate.
    """
    url, blocked, hour, day = publisher.origin, "http://www.blocked.test/", 3600.0, 86400.0
    inline = publisher.answers[BLOCKLIST_PATH][2].decode().replace("blocked.test", "127.0.0.1")
    plain = SANDBOX_BLOCKLIST.replace("blocked.test", "127.0.0.1")
    tag = "?impl=walsh%2Fresearch&sha=afd2c01&spec=walsh-research-compliance/v1.3"
    repl = "?impl=walsh_research&sha=repl&spec=walsh-research-compliance/v1.3"
    opted_in = {"robots2": True}
    manifests = "blocklist.json robots.txt robots2.txt robots2-base.txt"
    ask = "HEAD robots2-ask?directive=crawl&agent=Walsh-Research/1.2+id"
    asked = f"{manifests} {ask}"

    def run(bot: Bot) -> list[str]:
        return [result.outcome for result in bot.run([url + "/feed.xml", url + "/feed.xml#a"])]

    def discover(path: str) -> Callable[[Bot], list[str]]:
        return lambda bot: [f"{source.kind}:{source.url[len(url):]}:{len(source.items)}" for source in bot.discover(url + path)]

    return (
        ("R2", "robots.txt blocks /denied; no GET /denied ever issued", "blocklist.json robots.txt denied:R2",
         "/denied"),
        ("R2", "robots.txt answers 404: no rules, whatever `unreachable` says", "blocklist.json robots.txt denied fetched",
         {"unreachable": "defer"}, ("/robots.txt", "", 404), "/denied"),
        ("R2", "robots.txt answers 500: unreachable, so allowed", "blocklist.json robots.txt denied fetched",
         ("/robots.txt", "", 500), "/denied"),
        ("R2", "unreachable=\"defer\": later, not never", "blocklist.json robots.txt deferred:R2",
         {"unreachable": "defer"}, ("/robots.txt", "", 500), "/denied"),
        ("R2", "a held copy stays in force while robots.txt is out of reach",
         "blocklist.json robots.txt denied:R2 blocklist.json robots.txt 1s denied:R2",
         "/denied", ("/robots.txt", "", 500), day, "/denied"),
        ("R2", "a hop of a redirect goes through the gates", "blocklist.json robots.txt moved denied:R2", "/moved"),
        ("R2a", "named Walsh-Research group overrides `*`", "blocklist.json robots.txt star-only fetched", "/star-only"),
        ("R2b", "`*` and `$` in a path", "blocklist.json robots.txt denied:R2 a.pdf?x=1 fetched", "/wild/a.pdf", "/wild/a.pdf?x=1"),
        ("R2c", "in doubt denied: an expanded `*` outweighs a shorter Allow", "blocklist.json robots.txt denied:R2", "/wild/open.pdf"),
        ("R2d", "Crawl-delay of the named group", "blocklist.json robots.txt allowed fetched allowed 7s unchanged",
         ("/robots.txt", "User-agent: *\nCrawl-delay: 3\n\nUser-agent: Walsh-Research\nCrawl-delay: 7\n"), "/allowed", "/allowed"),

        ("R3", "operator blocklist, fetched first, blocks apex `blocked.test`", "blocklist.json denied:R3",
         "http://blocked.test/"),
        ("R3a", "subdomain `www.blocked.test` blocked by apex entry", "blocklist.json denied:R3", blocked),
        ("7", "R3 before R2: no robots.txt of a blocked host is asked for", "blocklist.json denied:R3",
         (BLOCKLIST_PATH, inline), "/allowed"),
        ("R3", "a newer list replaces the old; unrelated host not falsely blocked",
         "blocklist.json denied:R3 blocklist.json robots.txt allowed 2s fetched",
         (BLOCKLIST_PATH, inline), "/allowed", (BLOCKLIST_PATH, inline.replace("127.0.0.1", "other.test")), 7 * hour, "/allowed"),
        ("R3", "the list is asked again after its own refresh", "blocklist.json denied:R3 denied:R3 blocklist.json denied:R3",
         (BLOCKLIST_PATH, inline.replace("PT6H", "PT1H")), "/allowed", 0.9 * hour, "/allowed", 0.2 * hour, "/allowed"),
        ("R3", "a hop of robots.txt to a blocked host is not followed", "blocklist.json robots.txt denied fetched",
         (BLOCKLIST_PATH, inline.replace("127.0.0.1", "localhost")),
         ("/robots.txt", "", 302, {"Location": url.replace("127.0.0.1", "localhost") + "/robots.txt"}), "/denied"),
        ("R3", "an address that is not public is refused before a byte is sent", "1s denied:address",
         {"origin": ORIGIN, "allow_private": False, "transport": object()}, "/allowed"),
        ("R3b", "retain last list on transient fetch failure, and on garbage", "blocklist.json denied:R3 " * 3,
         blocked, (BLOCKLIST_PATH, "", 404), 7 * hour, blocked, (BLOCKLIST_PATH, SANDBOX_ROBOTS), 7 * hour, blocked),
        *(("R3c", f"rejected; prior list retained: {new} for {old}", "blocklist.json denied:R3 " * 2,
           blocked, (BLOCKLIST_PATH, inline.replace(old, new)), 7 * hour, blocked)
          for old, new in (('"2026-05-23T00:00:00Z"', "7"), ('"127.0.0.1"', "7"), ("list/v1", "list/v10"), ('"blocked"', '"listed"'))),
        ("R10", "no inline schema: the standalone one is fetched", "blocklist.json blocklist.schema.json denied:R3",
         (BLOCKLIST_PATH, plain), "/allowed"),
        ("R10", "a stale schema is kept where the fresh one cannot be had",
         "blocklist.json blocklist.schema.json denied:R3 blocklist.json blocklist.schema.json 1s denied:R3",
         (BLOCKLIST_PATH, plain), "/allowed",
         (SCHEMA_PATH, "", 404), (BLOCKLIST_PATH, plain.replace("127.0.0.1", "third.test")), 8 * day, "http://third.test/"),
        ("R10", "no schema at all: the document is not adopted", "blocklist.json blocklist.schema.json robots.txt allowed fetched",
         (BLOCKLIST_PATH, plain), (SCHEMA_PATH, "", 404), "/allowed"),

        ("R4", "a redirect is followed as a request of its own", "blocklist.json robots.txt redirected allowed 1s fetched", "/redirected"),
        ("R4", "a retry waits for its slot, whatever the dice say", "blocklist.json robots.txt" + " busy" * 6 + " 5s failed:R5", "/busy"),
        ("R4c", "first request to unseen host not delayed", "blocklist.json robots.txt allowed fetched", "/allowed"),
        ("R5", "at most five retries; then a hold, which binds the next run",
         "blocklist.json robots.txt" + " busy" * 6 + " 5s failed:R5 deferred:R5 deferred:R5",
         {"cache_dir": folder}, "/busy", "/allowed", {"cache_dir": folder}, "/allowed"),
        ("R5", "Retry-After in place of the schedule, each time", "blocklist.json robots.txt" + " busy" * 6 + " 150s failed:R5",
         ("/busy", "", 503, {"Retry-After": "30"}), "/busy"),
        ("R5a", "backoff is capped", "60.0", lambda bot: [backoff_delay(20, rand=lambda: 1.0)]),
        ("R5a", "backoff jitter produces variance", "True",
         lambda bot: [0.5 < max(delays) - min(delays) <= 4.0 for delays in [[backoff_delay(2) for _ in range(20)]]]),
        ("R5b", "Retry-After delta-seconds parsed; empty/None -> None", "120.0 None None",
         lambda bot: [parse_retry_after(value, 0.0) for value in ("120", "", None)]),

        ("R6", "no unexpected URL fetched (no recursion)", "blocklist.json robots.txt page fetched", "/page"),
        ("R6", "no body in an output", "blocklist.json robots.txt allowed url",
         lambda bot: sorted({"body", "text", "url"} & set(bot.fetch(url + "/allowed").to_dict()))),
        ("R6", "an image is not read", "blocklist.json robots.txt picture.png image/png is not read (R6)",
         lambda bot: bot.fetch(url + "/picture.png").warnings),
        ("R7", "conditional GET yields 304; validators replayed byte for byte",
         'blocklist.json robots.txt allowed fetched allowed 1s unchanged "allowed-1" Sat, 23 May 2026 00:00:00 GMT', "/allowed", "/allowed",
         lambda bot: [publisher.hits[-1].headers.get(name) for name in ("if-none-match", "if-modified-since")]),
        ("R7b", "canonical URL drops #fragment: two spellings of one source are one", "blocklist.json robots.txt feed.xml skipped fetched",
         run),
        ("R8", "a source fetched within the hour is skipped, then asked again",
         "blocklist.json robots.txt feed.xml skipped fetched skipped skipped feed.xml skipped fetched", run, run, hour + 1, run),
        ("R9", "Accept asks for markdown first; its links by the generic rule",
         "blocklist.json robots.txt page.md https://example.org/1 https://example.org/2 text/markdown",
         lambda bot: [link.url for link in bot.fetch(url + "/page.md").links],
         lambda bot: [publisher.hits[-1].headers.get("accept", "").partition(",")[0]]),
        ("R9", "feeds, llms.txt, sitemaps of a page: only llms.txt is requested",
         "blocklist.json robots.txt page llms.txt feed:/feed.xml:0 feed:/atom.xml:0 llms.txt:/llms.txt:2 sitemap:/sitemap.xml:0",
         discover("/page")),
        *(("R9", f"{path[1:]} by its items", f"blocklist.json robots.txt {path[1:]} {kind}:{path}:{count}",
           ("/robots.txt", ""), discover(path))
          for path, kind, count in (("/feed.xml", "feed", 1), ("/atom.xml", "feed", 1), ("/feed.json", "feed", 1),
                                    ("/sitemap.xml", "sitemap", 2), ("/sitemap.xml.gz", "sitemap", 2))),
        ("R9", "page.md by its items, then llms.txt",
         "blocklist.json robots.txt page.md llms.txt markdown:/page.md:2 llms.txt:/llms.txt:2 sitemap:/sitemap.xml:0",
         discover("/page.md")),
        ("R2", "llms.txt overrides no robots.txt, and a sitemap grants nothing",
         "blocklist.json robots.txt page llms.txt feed:/feed.xml:0 feed:/atom.xml:0 llms.txt:/llms.txt:2 sitemap:/sitemap.xml:0 denied:R2",
         discover("/page"), "/denied"),

        ("R11", "a second run asks nothing that it still knows", "blocklist.json robots.txt allowed fetched allowed 1s unchanged",
         {"cache_dir": folder + "/R11"}, "/allowed", {"cache_dir": folder + "/R11"}, "/allowed"),
        ("R12", "a stale entry blocks on its refresh", "blocklist.json robots.txt allowed fetched blocklist.json robots.txt 1s denied:R2",
         "/allowed", ("/robots.txt", "User-agent: *\nDisallow: /allowed\n"), day, "/allowed"),
        ("R13", "no identity, no tag; the gates see the untagged URL",
         f"blocklist.json robots.txt allowed fetched blocklist.json{tag} robots.txt{tag} allowed{tag} 3s fetched",
         ("/robots.txt", "User-agent: *\nDisallow: /*impl=\n"), "/allowed", {"tag": "walsh/research@afd2c01"}, "/allowed"),
        ("1.1", "at a prompt: R4 does not hold, sha=repl",
         f"blocklist.json{repl} robots.txt{repl} allowed{repl} fetched allowed{repl} unchanged",
         {"interactive": True}, "/allowed", "/allowed"),

        ("policy", "X-Robots-Tag is surfaced, ours before everyone's", "blocklist.json robots.txt tagged noai",
         lambda bot: bot.fetch(url + "/tagged").robots_directives),
        ("policy", "Content-Signal of our group is shown", "blocklist.json robots.txt allowed search=yes ai-train=no",
         lambda bot: ["=".join(signal) for signal in bot.fetch(url + "/allowed").content_signals.items()]),

        ("robots2", "without the option nothing is requested or announced", "blocklist.json robots.txt robots2-denied fetched",
         "/robots2-denied"),
        ("robots2", "its chain, one question; announce: yes; rate: 30, each two seconds",
         f"{asked} allowed+id 6s fetched allowed+id 2s unchanged", opted_in, "/allowed", "/allowed"),
        ("robots2", "scopes bind; path rules deny, those of the chain too", f"{asked} 4s denied:robots2 denied:robots2 denied:robots2",
         opted_in, "/star-only", "/robots2-denied", "/robots2-base-denied"),
        ("robots2", "may() answers in the words of the text", asked.replace("crawl", "derivative") + " no short-only ask unstated",
         opted_in,
         lambda bot: [bot.may(url + "/allowed", name).reason.partition(":")[0] for name in ("train", "quote", "derivative", "monetise")]),
        ("robots2", "an allow holds for 24 hours, then it is asked for again",
         f"{asked} allowed+id 6s fetched blocklist.json+id robots.txt+id robots2.txt+id robots2-base.txt+id {ask} allowed+id 10s unchanged",
         opted_in, "/allowed", day, "/allowed"),
        ("robots2", "kept like robots.txt while unreachable",
         f"{manifests} 2s denied:robots2 blocklist.json+id robots.txt+id robots2.txt+id 4s denied:robots2",
         opted_in, "/robots2-denied", ("/robots2.txt", "", 500), day, "/robots2-denied"),
        *(("robots2", f"answer {status} {decision} is {outcome}", f"{asked} 4s {outcome}:robots2", opted_in,
           (ROBOTS2_ASK_PATH, "", status, {"X-Robots2-Decision": decision, "Retry-After": "900"}), "/allowed")
          for status, decision, outcome in ((200, "deny", "denied"), (200, "perhaps", "denied"), (404, "allow", "denied"),
                                            (500, "allow", "denied"), (429, "allow", "deferred"))),
        ("robots2", "allow-once is for one request", f"{asked} allowed+id 6s fetched {ask} allowed+id 4s unchanged",
         opted_in, (ROBOTS2_ASK_PATH, "", 200, {"X-Robots2-Decision": "allow-once"}), "/allowed", "/allowed"),
        ("robots2", "announce: no, and still every question says who asks", f"{asked} allowed 3s fetched".replace(" robots2-base.txt", ""),
         opted_in, ("/robots2.txt", "crawl: ask\nannounce: no\n"), "/allowed"),
        ("robots2", "a category's own block overrides", f"{manifests} 2s denied:robots2",
         {"robots2": "monitoring"}, "/allowed"),
        ("robots2", "the question is itself behind robots.txt", f"{manifests} 2s denied:robots2",
         opted_in, ("/robots.txt", "User-agent: *\nDisallow: /.well-known/robots2-ask\n"), "/allowed"),
        ("robots2", "it narrows, and never widens", "blocklist.json robots.txt denied:R2",
         opted_in, ("/robots2.txt", "User-agent: *\nAllow: /\ncrawl: yes\n"), "/denied"),
    )


SCENES = (scene_pace, scene_stories)


# --- The live fixtures, spec 13 and 16 ------------------------------------------

def live_checks(bot: Bot) -> Iterator[Check]:
    """The fixtures and canaries of the origin, at the pace that its robots.txt asks."""
    def judge(clause: str, check: str, found: Result | Decision, gate: str | None = None) -> Check:
        """A Result is to be that of a page that was fetched, a Decision to be `gate`'s refusal, or None's."""
        if isinstance(found, Result):
            holds, said = found.ok and found.status in (200, 304), f"{found.outcome} {found.status or found.gate or 'without an answer'}"
            is_lost = found.status is None and (found.outcome != "denied" or found.gate == "address")       # no HTTP answer
        else:
            holds, said = found.gate == gate, found.gate or "allowed"
            is_lost = gate != "R3" and found.verdict is Verdict.UNKNOWN_UNREACHABLE
        return Check(clause, check, "skip" if is_lost else "pass" if holds else "fail", f"{said}: {found.url}: {found.reason}")

    yield judge("R1", "the policy page of the User-Agent is there", bot.probe(bot.origin + "/bot/"))
    index = bot.probe(bot.origin + FIXTURES_PATH)
    yield judge("13", "the fixtures index", index)
    fixtures = DEFAULT_FIXTURES
    if index.body:
        try:
            document = parse_json(index.body, "test-fixtures.json")
            fixtures = {**fixtures, **{name: url for name, url in document["fixtures"].items() if isinstance(url, str)}}
            contract = document["contract"]
            is_known = re.fullmatch(r"walsh-research-test-fixtures/v1(\.[0-9]+)?", contract) is not None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            contract, is_known = f"{type(error).__name__}: {error}", False
        yield Check("13", "the fixtures' contract", "pass" if is_known else "fail", contract)
    blocked = fixtures["operator_blocked_host"]
    for clause, check, host in (
            ("R3", f"the live list blocks {printable(blocked, 80)}", blocked), ("R3a", "and what is below it", "www." + blocked)):
        if bot.blocklist_size:
            yield judge(clause, check, bot.may_fetch(f"https://{host}/", wait=False), "R3")
        else:                   # nobody is asked who may have opted out
            yield Check(clause, check, "fail" if bot.blocklist_status else "skip", "no list with an entry could be adopted")
    yield judge("R2", "the external positive", bot.probe(fixtures["external_positive"]))
    for clause, name in (("R2", "robots_allowed_sentinel"), ("R2a", "walsh_only_allowed")):
        yield judge(clause, f"{name} is fetched", bot.probe(fixtures[name]))
        for ending in (".html", ".md"):
            yield judge(clause, f"{name}{ending} is allowed", bot.may_fetch(fixtures[name] + ending, wait=False))
    for ending in ("", ".html", ".md"):
        yield judge("R2", f"robots_disallowed{ending} is refused", bot.may_fetch(fixtures["robots_disallowed"] + ending, wait=False), "R2")


def detect_identity(environ: Any, folder: str) -> str | None:
    """R13: "ORG/REPO@SHA" from GitHub's variables, else from the git repository around the file, else None."""
    import subprocess

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", "-C", folder, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       timeout=5, text=True).strip()

    repository, sha = environ.get("GITHUB_REPOSITORY"), environ.get("GITHUB_SHA", "")[:7]
    try:
        if not repository:
            repository = re.findall(r"[\w.-]+/[\w.-]+?(?=(?:\.git)?/?$)", git("remote", "get-url", "origin"), re.ASCII)[0]
            sha = git("rev-parse", "--short", "HEAD")
        tag = f"{repository}@{sha}" if sha else repository
        parse_tag(tag)
    except (OSError, ValueError, LookupError, subprocess.SubprocessError):
        return None
    return tag


# --- The attestation, spec 14 -----------------------------------------------------

REQUIREMENTS = (
    "R1", "R2", "R2a", "R2b", "R2c", "R2d", "R3", "R3a", "R3b", "R3c", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13")


def attest() -> dict[str, Any]:
    """The attestation document of spec 14, every value measured now, in about four seconds.

    A requirement is true where it has checks, and each of them, and of its letters, has passed.
    """
    checks = list(sandbox_checks())
    requirements = {name: {check.outcome for check in checks if re.fullmatch(name + "[a-z]?", check.clause)} == {"pass"}
                    for name in REQUIREMENTS}
    passed = sum(check.outcome == "pass" for check in checks)
    return {"contract": "walsh-research-attestation/v1", "tool": TOOL_NAME, "tool_version": __version__, "spec": SPEC_VERSION,
            "user_agent": next((check.observed for check in checks if check.clause == "R1"), ""), "requirements": requirements,
            "conformant": passed == len(checks) and all(requirements.values()), "checks": {"passed": passed, "of": len(checks)}}


# --- The process-wide bot: import walsh_research; walsh_research.fetch(url) -----------

@cache
def default_bot() -> Bot:
    """Made when first asked for: an import touches nothing."""
    return Bot()


def may_fetch(url: str, wait: bool = True) -> Decision:
    """Bot.may_fetch on the process-wide bot."""
    return default_bot().may_fetch(url, wait)


def fetch(url: str, fresh: bool = False) -> Result:
    """Bot.fetch on the process-wide bot."""
    return default_bot().fetch(url, fresh)


def run(urls: Iterable[str], min_age: float = 3600.0) -> Iterator[Result]:
    """Bot.run on the process-wide bot."""
    return default_bot().run(urls, min_age)


def discover(url: str) -> Iterator[Source]:
    """Bot.discover on the process-wide bot."""
    return default_bot().discover(url)


# === 17. DESK   the command ==============================================
# Owns arguments, printing, progress and exit codes. stdout carries results; stderr carries everything else.

# The help screen is the table of options: what `read_arguments` knows of their names, values and defaults it reads here.
HELP = """\
usage: walsh_research.py [options] URL...
Fetches the web politely, and proves it. One line a target: what happened, why.
targets:
  URL                   what to fetch; - reads stdin, one URL a line, # comments
  --input FILE          read targets from FILE as well
what to do (without one of these: fetch each target):
  --check               decide and explain gate by gate; fetch no target
  --discover            list a target's feeds, markdown, llms.txt and sitemaps
  --selftest            prove conformance: vectors, sandbox, live fixtures
  --attest              print the attestation document, measured now
  --version             print the version
  -h, --help            print this screen
pace and limits (TIME is 90, 5m, 1h30m or PT5M):
  --min-age TIME        skip what was fetched less than TIME ago (default 1h)
  --force               fetch it all the same; overrides --min-age alone
  --max-wait TIME       defer what may only be asked later (default 5m)
  --timeout SECONDS     for one whole request (default 30)
  --max-bytes N         of one body, decoded (default 10485760)
  --unreachable WHAT    while robots.txt is: allow or defer (default allow)
  --robots2             obey robots2.txt as well
  --allow-private       permit addresses that are not public
cache and output:
  --cache-dir DIR       by default $WALSH_RESEARCH_CACHE, else the platform's
  --no-cache            read no cache and keep none
  --json                JSON Lines on stdout
  -q, --quiet           only what was not OK, SAME or SKIP; no summary
  -v, --verbose         also each request, wait and gate, on stderr
proof:
  --offline             with --selftest: vectors and sandbox alone
  --origin URL          publishes the blocklist (default https://wal.sh)
  --tag ORG/REPO[@SHA]  sign requests to the origin (R13)
examples:
  walsh_research.py https://example.org/ https://example.net/feed.xml
  walsh_research.py --check https://example.org/private
  walsh_research.py --input targets.txt --json >> results.jsonl
exit codes:
  0 all fetched, unchanged or fresh      1 a target failed or was deferred
  2 command line or input file wrong     3 nothing failed, a gate denied
  4 live fixtures out of reach         130 Ctrl-C, 143 SIGTERM, 129 SIGHUP
"""
TEXTS = {"help": HELP[:-1], "version": f"walsh_research {__version__} ({SPEC_VERSION})"}
OPTION = r"^  (?:(-\w), )?(--[\w-]+)(?: ([A-Z]\S*))? .*?(?:\(default (\S+)\))?$"       # short name, name, value, default
READERS: dict[str, tuple[Callable[[str], Any], str]] = {        # of a value, as HELP names it: its reader, and what that wants
    "TIME": (parse_wait, "seconds (90), units (30s, 5m, 1h30m, 1d) or ISO 8601 (PT5M)"), "SECONDS": (parse_wait, "seconds (90)"),
    "N": (int, "a whole number"), "URL": (lambda text: site_of(wire_url(text)), "http(s)://host or http(s)://host:port"), "DIR": (lambda text: os.path.expanduser(text) or PLATFORM_CACHE, "")}
MODES = "--help", "--version", "--check", "--discover", "--selftest", "--attest"       # the first prevails
RIVALS = {*MODES[2:], "--force"}, {"--selftest", "--attest", "a target"}, {"--cache-dir", "--no-cache"}      # at most one of each
OUTCOMES = {"fetched": ("OK", 32, 0), "unchanged": ("SAME", 32, 0), "denied": ("DENY", 33, 3), "deferred": ("WAIT", 36, 1), "skipped": ("SKIP", 2, 0),
            "failed": ("FAIL", 31, 1), "pass": ("PASS", 32, 0), "fail": ("FAIL", 31, 1), "skip": ("SKIP", 2, 0)}    # word, ANSI colour, exit code
BOT_OPTIONS = {"cache_dir", "origin", "timeout", "max_wait", "max_bytes", "unreachable", "robots2", "allow_private", "tag"}
EXIT_CODES = (0, 4, 3, 1, 2)    # a later one prevails
MAX_URL_COLUMNS = 60            # ours: characters to which URLs are padded; longer ones stay whole


class Misuse(Exception):
    """The command line or an input file is wrong: "this is so, want that"."""


# --- Arguments ----------------------------------------------------------------

def read_arguments(argv: Sequence[str]) -> Any:
    """The options by name, with `mode`, `urls` and `input`. Misuse: it cannot be meant."""
    import getopt
    import types  # only the command needs them
    rows = re.findall(OPTION, HELP, re.MULTILINE)
    wants = {name: value for _, name, value, _ in rows}
    for name in re.findall(r"^--[^=\n]+", "\n".join(argv).partition("\n--\n")[0], re.MULTILINE):
        if name not in wants:       # nor is one cut short, which a later option may take
            import difflib  # only where something was misspelt
            near = difflib.get_close_matches(name, wants, 1, 0.7) or ["one that --help shows"]
            raise Misuse(f"{name} is no option, want {near[0]}")
    end = argv.index("--") if "--" in argv else len(argv)
    rest = [f"{name}={default}" for _, name, _, default in rows if default] + [*argv[:end]]
    pairs, urls = list[tuple[str, str]](), list[str]()
    try:
        while rest:         # options and targets in any order, which gnu_getopt refuses where POSIXLY_CORRECT is set
            found, rest = getopt.getopt(rest, "hqv", [name[2:] + "=" * bool(value) for name, value in wants.items()])
            pairs, urls, rest = pairs + found, urls + rest[:1], rest[1:]
    except getopt.GetoptError as error:
        raise Misuse(f"command line is wrong ({error}), want it as --help shows it") from None
    long_names = {short: name for short, name, _, _ in rows}
    given: dict[str, Any] = {long_names.get(name, name): value for name, value in pairs}
    for name, value in given.items():
        read, wanted = READERS.get(wants[name], (str, ""))
        try:
            given[name] = read(value) if wants[name] else True
        except ValueError:
            raise Misuse(f"{name} is {mask_credentials(value)!r}, want {wanted}") from None
    urls += argv[end + 1:]
    inputs = [value for name, value in pairs if name == "--input"]
    if urls or inputs:
        given["a target"] = True
    for rivals in RIVALS:
        beside = [name for name in given if name in rivals]
        if beside[1:]:
            raise Misuse(f"{beside[1]} is beside {beside[0]}, want one of them")
    mode = next(filter(given.__contains__, MODES), "--fetch")[2:]
    if "--offline" in given and "--selftest" not in given:
        raise Misuse("--offline is without --selftest, want both")
    if mode in ("fetch", "check", "discover") and "a target" not in given:
        raise Misuse("no target is named, want a URL, - for stdin, or --input FILE; --help shows all")
    options = {**dict.fromkeys(wants, False), "--tag": None, "--cache-dir": PLATFORM_CACHE, **given, "--input": inputs, "--urls": urls, "--mode": mode}
    return types.SimpleNamespace(**{name[2:].replace("-", "_"): value for name, value in options.items()})


def lines_of(name: str) -> list[str]:
    """The targets in a file, or in stdin ("-"), which is None where it was closed. OSError, ValueError: there are none."""
    with open(name, "rb") if name != "-" else sys.stdin.buffer if sys.stdin else io.BytesIO() as file:
        data = file.read()
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    lines = list(filter(None, (re.sub(r"(?:^|\s)#.*", "", line).strip() for line in text.splitlines())))
    if "\0" in text or not lines:
        raise ValueError("binary data" if lines else "no target in it")
    return lines


def terminal_columns(stream: Any) -> int:
    """How wide it is, where it is a terminal that moves its cursor when told to; elsewhere 0."""
    with suppress(AttributeError, OSError, ValueError):
        if stream.isatty() and os.environ.get("WT_SESSION" if sys.platform == "win32" else "TERM", "dumb") != "dumb":
            return os.get_terminal_size(stream.fileno()).columns or 80
    return 0


def folded(lead: str, text: str, columns: int) -> str:
    """Text after its lead, harmless, folded to a terminal's width; no URL in it is broken."""
    text = lead + printable(text, 2000)
    if not columns:
        return text
    import textwrap
    return textwrap.fill(text, max(40, columns), subsequent_indent=" " * len(lead), break_long_words=False, break_on_hyphens=False)


def say(text: str, end: str = "\n") -> None:
    """On stderr. That nobody reads it stops nothing."""
    with suppress(AttributeError, OSError, ValueError):         # the first: sys.stderr is None where it was closed
        sys.stderr.write(text + end)
        sys.stderr.flush()


def complain(error: object, words: Sequence[str]) -> None:
    """What is wrong, in one line; an object for those who asked for JSON."""
    import json
    say(json.dumps({"error": str(error)}) if "--json" in words else folded("walsh_research.py: ", str(error), terminal_columns(sys.stderr)))


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class TickingClock(SystemClock):
    """The system's clock, whose sleep wakes up now and then to tell how long it still is."""

    def __init__(self, tick: Callable[[float], None]) -> None:
        self._tick = tick

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0.0:
            self._tick(left)
            time.sleep(min(left, STATUS_TICK_SECONDS))


class Desk:
    """What was asked, how it is shown, and what came of it. The modes are its methods."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.options = words, read_arguments(words)
        self.width = terminal_columns(sys.stdout)       # 0: a line is a line, however long
        self.url_columns = 0
        self.targets: list[str] = []
        self.codes = {0}                                # exit codes: the worst is the command's
        self.counts: collections.Counter[str] = collections.Counter()       # outcomes
        self.waited: Any = collections.Counter()        # seconds, by host and why
        self.again: list[tuple[float, str]] = []
        self.clock = TickingClock(self.tick)
        self.started_at = self.clock.monotonic()
        self.bot: Any = None

    def run(self) -> int:
        options = self.options
        self.read_targets()
        try:
            if options.mode in TEXTS:
                self.put(TEXTS[options.mode])
            elif options.mode == "attest":
                self.attest()
            elif self.targets or self.codes == {0}:     # not where each file was wrong
                with self.make_bot() as self.bot:
                    getattr(self, options.mode)()
        finally:
            self.show()
        return max(self.codes, key=EXIT_CODES.index)

    def make_bot(self) -> Bot:
        """A bot as the options want it. Misuse: they would break a promise."""
        options = self.options
        wanted = {name: value for name, value in vars(options).items() if name in BOT_OPTIONS}
        if options.no_cache or options.selftest:        # the fixtures are asked for afresh
            wanted["cache_dir"] = None
        if options.selftest and not options.offline:    # R13, where it is known who asks
            wanted["tag"] = options.tag or detect_identity(os.environ, os.path.dirname(__file__))
        try:
            return Bot(clock=self.clock, warn=lambda line: self.tell(f"warning: {line}"), trace=self.hear, **wanted)
        except ValueError as error:
            raise Misuse(error) from None

    def read_targets(self) -> None:
        """A file that is wrong is told, and costs the others nothing."""
        self.targets = [url for url in self.options.urls if url != "-"]
        for name in ["-"] * ("-" in self.options.urls) + self.options.input:
            try:
                self.targets += lines_of(name)
            except (OSError, ValueError) as error:
                self.codes.add(2)
                found = getattr(error, "strerror", None) or error
                complain(f"{'stdin' if name == '-' else '--input ' + name} is unusable ({found}), want a text file, one URL a line", self.words)
        self.url_columns = min(MAX_URL_COLUMNS, max(map(len, self.targets), default=0))

    # --- Voices -----------------------------------------------------------

    def show(self, text: str = "") -> None:
        """The one live line on a terminal's stderr, gone with the next that stays; nothing at all elsewhere."""
        columns = terminal_columns(sys.stderr)
        if columns and not self.options.quiet:
            if text and len(self.targets) > 1:
                hosts = f"{counted(self.bot.hosts_left, 'host')} · " if self.bot.hosts_left else ""
                text = f"{sum(self.counts.values())}/{len(self.targets)} · {hosts}{text}"
            say("\r\x1b[2K" + printable(text, columns - 3), "")     # room for the ^C that a terminal echoes

    def tell(self, line: str) -> None:
        self.show()
        say(folded("", line, terminal_columns(sys.stderr)))

    def put(self, line: str) -> None:
        """A line on stdout, at once."""
        self.show()
        if sys.stdout is None:
            raise OSError(errno.EBADF, "closed")
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()

    def put_json(self, value: Any) -> None:
        import json
        self.put(json.dumps(value, allow_nan=False, indent=None if self.options.json else 2))

    def put_outcome(self, value: Any, outcome: str, code: str, name: str, detail: str) -> bool:
        """What became of it, counted, and shown unless --quiet: word, status or gate, URL, detail. Whether more may be said of it."""
        word, colour, exit_code = OUTCOMES[outcome]
        self.counts[outcome] += 1
        self.codes.add(exit_code)
        if self.options.quiet and not exit_code and outcome != "skip":
            return False
        self.put_line(value, f"{word:<4}  {code:<7}  ", name, detail, colour)
        return not self.options.json

    def put_line(self, value: Any, head: str, name: str, detail: str, colour: int = 0) -> None:
        """An object, or a line in columns; the detail below, where a terminal is too narrow for both."""
        if self.options.json:
            self.put_json(value.to_dict())
            return
        name = printable(name, MAX_URL_LENGTH)
        for columns in self.url_columns, 0:
            line = folded(f"{head}{name:<{columns}}  ", detail, 0).rstrip()
            if len(line) <= (self.width or sys.maxsize):
                break
        else:
            line = f"{head}{name}\n{folded(' ' * len(head), detail, self.width)}"
        self.put(f"\x1b[{colour}m{line[:4]}\x1b[0m{line[4:]}" if colour and self.width and not os.environ.get("NO_COLOR") else line)

    def hear(self, line: str) -> None:
        """What the bot says of its work: shown while it lasts, and told where that was asked for."""
        self.tell(line) if self.options.verbose else self.show(line)

    def tick(self, seconds: float) -> None:
        """What a wait is for, while it lasts."""
        host, why, left = self.bot.outlook()
        line = f"waiting {seconds:.1f} s" + (f" for {host}" if host else "") + (f" ({why})" if why else "")
        self.show(line + (f" · about {spell_seconds(left)} left" if left > 2.0 else ""))

    # --- What can be asked for --------------------------------------------

    def fetch(self) -> None:
        try:
            for result in self.bot.run(self.targets, min_age=0.0 if self.options.force else self.options.min_age):
                if self.options.verbose and result.final_url:       # a gate was asked
                    self.tell_gates(result)
                self.put_result(result)
        except KeyboardInterrupt:
            self.summarize()
            raise
        self.summarize()

    def tell_gates(self, result: Result) -> None:
        """As --check explains them, but for the pace and the next step, which are over."""
        reason = result.reason if result.gate else spell_rule(result.rule) if result.rule else "no rule forbids it"
        decision = Decision(False, result.final_url or result.url, result.gate, reason, result.verdict, result.rule,
                            group=result.group, robots_source=result.robots_source, content_signals=result.content_signals)
        for name, said in self.bot.explain(decision):
            self.tell(f"      {name:<10} {said}")

    def put_result(self, result: Result) -> None:
        """What came, or why not; the summary says of it how long it waited, and when to try again."""
        said: list[Any] = [result.reason]
        if result.outcome == "fetched":
            said = [counted(result.bytes, "byte"), result.content_type.partition(";")[0].strip(),
                    result.title and f'"{printable(result.title, 60)}"', result.links and counted(len(result.links), "link")]
        if result.retry_at and result.outcome != "skipped":
            self.again.append((result.retry_at, result.url))
            said.append(f"again at {iso_utc(result.retry_at)}")
        if result.waited >= 0.05:
            delay = f" (Crawl-delay {result.crawl_delay:g})" if result.crawl_delay else ""
            is_retried = result.attempts > 1 + len(result.redirects) or result.outcome == "failed" and result.retry_at
            why = " (back-off)" if is_retried else delay
            self.waited[host_key(result.final_url or result.url) + why] += result.waited
        said += [result.redirects and f"redirected to {printable(result.final_url, 400)}", *result.warnings]
        self.put_outcome(result, result.outcome, str(result.status or result.gate or "-"), result.url, ", ".join(filter(None, said)))

    def summarize(self) -> None:
        """How it went: outcomes, requests, waits, and what to try again when."""
        if self.options.quiet:
            return
        self.counts["not reached"] = len(self.targets) - sum(self.counts.values())
        outcomes = ", ".join(f"{self.counts[outcome]} {outcome}" for outcome in (*OUTCOMES, "not reached") if self.counts[outcome])
        spent = f"{counted(self.bot.requests, 'request')} in {spell_seconds(self.clock.monotonic() - self.started_at)}"
        waited = f"; waited {spell_seconds(sum(self.waited.values()))}, most for {self.waited.most_common(1)[0][0]}" if self.waited else ""
        self.tell(f"{counted(len(self.targets), 'target')}: {outcomes}; {spent}{waited}")
        if self.again:
            at, url = min(self.again)
            self.tell(f"again from {iso_utc(at)}: {url}" + (f" and {len(self.again) - 1} more" if len(self.again) > 1 else ""))

    def check(self) -> None:
        for url in self.targets:
            decision = self.bot.may_fetch(url, wait=False)
            outcome = "fetched" if decision else "failed" if decision.gate is None else "deferred" if decision.retry_at else "denied"
            again = f", again at {iso_utc(decision.retry_at)}" if decision.retry_at else ""
            is_told = self.put_outcome(decision, outcome, decision.gate or "-", decision.url, decision.reason + again)
            for name, said in self.bot.explain(decision) if is_told and outcome != "failed" else ():
                self.put(folded(f"      {name:<10} ", said, self.width))

    def discover(self) -> None:
        for url in self.targets:
            found = False
            for source in self.bot.discover(url):
                found = True
                said = counted(len(source.items), "item") if source.items else "listed", source.title and f'"{printable(source.title, 60)}"', source.warning
                self.put_line(source, f"{source.kind:<8}  ", source.url, ", ".join(filter(None, said)))
            if not found:
                self.codes.add(1)
                if self.options.json or not self.bot.last_result.ok:
                    self.put_result(self.bot.last_result)
                else:
                    self.tell(f"{mask_credentials(url)}: found no feed, no markdown, no llms.txt and no sitemap")

    def selftest(self) -> None:
        self.url_columns = 66       # ours: the longest name of a check
        live = () if self.options.offline else live_checks(self.bot)
        for checks in vector_checks(os.path.join(os.path.dirname(__file__), "vectors.json")), sandbox_checks(), live:
            for check in checks:
                self.put_outcome(check, check.outcome, check.clause, check.check, check.observed)
                if checks is live and check.outcome == "skip":      # out of reach
                    self.codes.add(4)
        summary = {"passed": self.counts["pass"], "failed": self.counts["fail"], "skipped": self.counts["skip"]}
        self.put_json({"summary": summary}) if self.options.json else self.put(", ".join(f"{n} {word}" for word, n in summary.items()))

    def attest(self) -> None:
        self.show("measuring in the sandbox, about four seconds")
        document = attest()
        self.put_json(document)
        self.codes.add(not document["conformant"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command: its arguments (`sys.argv[1:]` by default) to its exit code. Prints, and handles signals while it runs."""
    import signal

    words = sys.argv[1:] if argv is None else argv
    code, previous = 0, {}

    def interrupt(number: int, frame: Any) -> None:
        nonlocal code
        if code:                # again, while it ends: at once
            os._exit(code)
        code = 128 + number
        raise KeyboardInterrupt

    try:
        try:
            with suppress(ValueError):      # not the main thread: signals are somebody else's
                for number in {getattr(signal, name, signal.SIGINT) for name in ("SIGINT", "SIGTERM", "SIGHUP")}:
                    if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):    # who ignores one means it: nohup
                        previous[number] = signal.signal(number, interrupt)
            return Desk(words).run()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    except KeyboardInterrupt:
        return code or 130
    except Misuse as error:
        complain(error, words)
        return 2
    except OSError as error:    # a full disk behind stdout; or a closed pipe, and whoever read has heard enough
        with suppress(AttributeError, OSError):                 # or the interpreter would complain of what is left in its buffer
            sys.stdout.close()
        if isinstance(error, BrokenPipeError):
            return 0
        complain(f"stdout is unwritable ({error.strerror or error}), want room for every line", words)
        return 1


if __name__ == "__main__":
    sys.exit(main())
