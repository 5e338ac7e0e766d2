"""The watcher itself: a page that does what a report must never do is noticed."""

import pytest
from browser.watching import Watch

POLICY = '<meta http-equiv="Content-Security-Policy" content="script-src \'none\'">'
FAULTS = [
    ("request", '<img src="missing.png" alt="">'),
    ("request", '<link rel="stylesheet" href="//calipers.invalid/a.css">'),
    ("console", "<script>console.error('seen')</script>"),
    ("script", "<script>throw Error('seen')</script>"),
    ("dialog", "<script>alert('seen')</script>"),
    ("console", POLICY + "<script>document.title = 'seen'</script>"),
]


@pytest.mark.parametrize(("kind", "markup"), FAULTS)
def test_a_fault_of_a_page_is_noticed(kind, markup, browser, tmp_path):
    watch = Watch(browser)
    (tmp_path / "page.html").write_text(markup)
    watch.open(tmp_path / "page.html")
    watch.close()
    assert any(fault.startswith(f"{kind}:") for fault in watch.faults), watch.faults


def test_a_page_without_faults_has_none(opened, tmp_path):
    (tmp_path / "page.html").write_text("<p>text")
    assert opened(tmp_path / "page.html", anchor="there").locator("p").inner_text() == "text"
