/* test_token.c -- byte-pair tokenizers: their files, their ids, what is wrong
 * with either.  The ids of a_small_* are those of the package tokenizers on
 * the same files (tests/parity/reference/tokens.py has more texts). */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "runtime/token_own.h"
#include "tests/unit/temp.h"
#include <stdarg.h>
#include <sys/stat.h>
#include <zlib.h>

static const char clip_merges[] =
    "#version: 0.2\nb o\no t</w>\nbo ot</w>\nr e\nre d</w>\nc a\n"
    "ca t</w>\n\xc3\x83 \xc2\xa9</w>\n! !\n!! !</w>\n";
static const char *const qwen_merges[][2] = {
    {"b", "o"}, {"o", "t"}, {"bo", "ot"}, {"\xc4\xa0", "boot"}, {"r", "e"},
    {"re", "d"}, {"\xc4\x8a", "\xc4\x8a"}, {"\xc3\x83", "\xc2\xa9"},
    {"\xc4\xa0", "\xc4\xa0"}};
enum { NMERGE = sizeof qwen_merges / sizeof *qwen_merges };

/* Byte b in GPT-2's alphabet. */
static const char *letter(int b, char to[8])
{
    bool plain = (b > 32 && b < 127) || (b > 160 && b != 173);
    int c = plain ? b : b < 33 ? 256 + b : b < 161 ? 256 + b - 127 + 33
                                                  : 256 + 67;
    if (c < 128)
        snprintf(to, 8, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    else
        snprintf(to, 8, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 63));
    return to;
}

/* {"token": id} of all bytes but `lost`, and of what the merges make. */
static void vocab_put(FILE *f, int lost)
{
    char c[8];
    for (int b = 0; b < 256; b++)
        if (b != lost)
            fprintf(f, "%s\"%s\": %d", b ? ", " : "{", letter(b, c), b);
    for (int i = 0; i < NMERGE; i++)
        fprintf(f, ", \"%s%s\": %d", qwen_merges[i][0], qwen_merges[i][1],
                256 + i);
    fputc('}', f);
}

static const char *const qwen_parts[] = {
    "\"added_tokens\": [{\"id\": 300, \"content\": \"<|im_end|>\", \"special\":"
    " true, \"normalized\": false}]",
    "\"normalizer\": {\"type\": \"NFC\"}",
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\":"
    " \"Split\", \"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}"
    "]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\","
    " \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": "
    "false}]}",
    "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"
    " \"trim_offsets\": false, \"use_regex\": false}",
};

/* tokenizer.json; part `other` (0 to 3) is the given text instead. */
static void qwen_put(const char *name, int lost, int other, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fprintf(f, "{\"version\": \"1.0\"");
    for (int i = 0; i < 4; i++)
        fprintf(f, ", %s", i == other ? text : qwen_parts[i]);
    fprintf(f, ", \"model\": {\"type\": \"BPE\", \"merges\": [");
    for (int i = 0; i < NMERGE; i++)
        fprintf(f, "%s\"%s %s\"", i ? ", " : "", qwen_merges[i][0],
                qwen_merges[i][1]);
    fprintf(f, "], \"vocab\": ");
    vocab_put(f, lost);
    fprintf(f, "}}\n");
    fclose(f);
}

static DpcToken *token(const char *spec)
{
    DpcToken *t;
    if (dpc_token_open(spec, &t))
        fail_msg("%s: %s", spec, dpc_last_error());
    return t;
}

/* The ids of a text, then -1. */
static void gives(DpcToken *t, const char *text, ...)
{
    const int32_t *id;
    int64_t n, i = 0;
    va_list ap;
    if (dpc_token_ids(t, text, (int64_t)strlen(text), &id, &n))
        fail_msg("%s: %s", text, dpc_last_error());
    va_start(ap, text);
    for (int want; (want = va_arg(ap, int)) >= 0; i++)
        if (i >= n || id[i] != want)
            fail_msg("\"%s\": id %d is %d, wanted %d", text, (int)i,
                     i < n ? id[i] : -1, want);
    va_end(ap);
    assert_int_equal(n, i);
}

static void token_refuses(const char *spec, const char *part,
                          const char *more)
{
    DpcToken *t;
    assert_int_equal(dpc_token_open(spec, &t), DPC_USER);
    assert_null(t);
    says("error: tokenizer: ");
    says(part);
    says(more);
}

static void a_small_clip_gives_its_ids(void **state)
{
    (void)state;
    put("clip.txt", clip_merges, sizeof clip_merges - 1);
    DpcToken *t = token(at("clip.txt"));
    assert_int_equal(dpc_token_count(t), 512 + 10 + 2);
    assert_int_equal(dpc_token_length(t), 77);
    gives(t, "", 522, 523, -1);
    gives(t, "  a  RED\n boot ", 522, 320, 516, 514, 523, -1);
    gives(t, "cat's 42", 522, 518, 6, 338, 275, 273, 523, -1);
    gives(t, "e\xcc\x81 \xc3\x89 boots!!!", 522, 519, 519, 512, 78, 83, 338,
          521, 523, -1);
    gives(t, "\xf0\x9f\x98\x80", 522, 172, 253, 246, 478, 523, -1);
    gives(t, "<|endoftext|>red<|STARTOFTEXT|>", 522, 523, 516, 522, 523, -1);
    dpc_token_close(t);
}

static void a_small_qwen_gives_its_ids(void **state)
{
    (void)state;
    mkdir(at("q"), 0700);
    qwen_put("q/tokenizer.json", -1, -1, NULL);
    DpcToken *t = token(at("q"));
    assert_int_equal(dpc_token_count(t), 301);
    assert_int_equal(dpc_token_length(t), 0);
    gives(t, "", -1);
    gives(t, "red boot Boot", 261, 259, 32, 66, 111, 257, -1);
    gives(t, "it'S 42\n\n  x", 105, 116, 39, 83, 32, 52, 50, 262, 32, 32, 120,
          -1);
    gives(t, "e\xcc\x81    boot  ", 263, 264, 32, 259, 264, -1);
    gives(t, "a<|im_end|>\n", 97, 300, 10, -1);
    gives(t, "\xe7\xba\xa2\xe8\x89\xb2", 231, 186, 162, 232, 137, 178, -1);
    dpc_token_close(t);
}

/* vocab.json, merges.txt and the class, or none: as tokenizer.json. */
static void the_older_files_give_the_same(void **state)
{
    (void)state;
    FILE *f = fopen(at("vocab.json"), "w");
    vocab_put(f, -1);
    fclose(f);
    f = fopen(at("merges.txt"), "w");
    for (int i = 0; i < NMERGE; i++)
        fprintf(f, "%s %s\r\n", qwen_merges[i][0], qwen_merges[i][1]);
    fclose(f);
    static const char config[] = "{\"tokenizer_class\": \"Qwen2TokenizerFast\","
        " \"pad_token\": {\"content\": \"<pad>\"}, \"model_max_length\": 32, "
        "\"added_tokens_decoder\": {\"300\": {\"content\": \"<|im_end|>\"}, "
        "\"301\": {\"content\": \"<pad>\"}}}";
    for (int i = 0; i < 2; i++) {
        DpcToken *t = token(i ? at("vocab.json") : temp_dir);
        gives(t, "red boot Boot", 261, 259, 32, 66, 111, 257, -1);
        if (i) {
            int32_t row[4];
            int64_t used;
            gives(t, "a<|im_end|>", 97, 300, -1);
            assert_int_equal(dpc_token_length(t), 32);
            assert_int_equal(dpc_token_row(t, "red", 3, 4, row, &used), 0);
            assert_true(used == 1 && row[0] == 261 && row[3] == 301);
        }
        dpc_token_close(t);
        put("tokenizer_config.json", config, sizeof config - 1);
    }
}

static void rows_are_cut_and_padded(void **state)
{
    (void)state;
    int32_t row[5];
    int64_t used;
    gzFile f = gzopen(at("clip.txt.gz"), "wb");
    gzwrite(f, clip_merges, sizeof clip_merges - 1);
    gzclose(f);
    char spec[600];
    snprintf(spec, sizeof spec, "%s?length=5&pad=7", at("clip.txt.gz"));
    DpcToken *t = token(spec);
    assert_int_equal(dpc_token_length(t), 5);
    assert_int_equal(dpc_token_row(t, "red boot", 8, 5, row, &used), DPC_OK);
    static const int32_t padded[] = {522, 516, 514, 523, 7};
    assert_memory_equal(row, padded, sizeof row);
    assert_int_equal(used, 4);
    assert_int_equal(dpc_token_row(t, "red red red boot", 16, 5, row, &used),
                     DPC_OK);
    static const int32_t cut[] = {522, 516, 516, 516, 523};
    assert_memory_equal(row, cut, sizeof row);
    assert_int_equal(used, 5);
    dpc_token_close(t);
}

/* Texts that html.unescape of Python, twice, makes one from the other. */
static void html_is_undone_in_openais_form(void **state)
{
    (void)state;
    static const char *const pair[][2] = {
        {"&lt;b&gt; &amp; &quot;c&QUOT; it&#39;s&apos;", "<b> & \"c\" it's'"},
        {"&amp;quot;r&amp;amp;d&amp;quot;", "\"r&d\""},
        {"caf&eacute; &Uuml; &yuml;&nbsp;x &thorn", "caf\xc3\xa9 \xc3\x9c "
         "\xc3\xbf\xc2\xa0x \xc3\xbe"},
        {"a &hellip; b &mdash;&rsquo; &euro;9", "a \xe2\x80\xa6 b "
         "\xe2\x80\x94\xe2\x80\x99 \xe2\x82\xac" "9"},
        {"&#65;&#x42;&#X43;D&#69 &#128;", "ABCDE \xe2\x82\xac"},
        {"&#0;&#xd800;&#x110000;&#99999999999;", "\xef\xbf\xbd\xef\xbf\xbd"
         "\xef\xbf\xbd\xef\xbf\xbd"},
        {"x&#1;y&#xffff;z", "xyz"},
        {"&#x1f600;", "\xf0\x9f\x98\x80"},
    };
    static const char plain[] = "AT&T; & co &; &# &#; &#x; &nonesuch; &";
    char text[sizeof plain];
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        char to[80];
        int64_t n = (int64_t)strlen(strcpy(to, pair[i][0]));
        n = dpc_token_html(to, dpc_token_html(to, n));
        assert_int_equal(n, strlen(pair[i][1]));
        assert_memory_equal(to, pair[i][1], (size_t)n);
    }
    memcpy(text, plain, sizeof plain);
    assert_int_equal(dpc_token_html(text, sizeof plain - 1), sizeof plain - 1);
    assert_string_equal(text, plain);
    put("clip.txt", clip_merges, sizeof clip_merges - 1);
    DpcToken *t = token(at("clip.txt"));
    gives(t, "&#114;ed &amp;#98;oot", 522, 516, 514, 523, -1);
    dpc_token_close(t);
}

/* Texts that ftfy.fix_text makes one from the other. */
static void typography_becomes_plain(void **state)
{
    (void)state;
    static const char *const pair[][2] = {
        {"it\u2019s \u201cso\u201d, \u02bcn \u201ano", "it's \"so\", 'n 'no"},
        {"\ufb01ne o\ufb03ce \u01c8ubav \u0149", "fine office Ljubav 'n"},
        {"\uff21\uff11\uff01\u3000\uff76 \uffe3", "A1! \u30ab  \u0304"},
        {"a\x01\x7f" "b\ufeff\u206a c\td\n", "ab c\td\n"},
        {"\u2014 \u2026 caf\u00e9 \u4f60", "\u2014 \u2026 caf\u00e9 \u4f60"},
    };
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        char to[80];
        int64_t n = (int64_t)strlen(strcpy(to, pair[i][0]));
        n = dpc_token_tidy(to, n);
        assert_int_equal(n, strlen(pair[i][1]));
        assert_memory_equal(to, pair[i][1], (size_t)n);
    }
    put("clip.txt", clip_merges, sizeof clip_merges - 1);
    DpcToken *t = token(at("clip.txt"));
    gives(t, "r\ufeff" "ed \uff42oot", 522, 516, 514, 523, -1);
    dpc_token_close(t);
}

static void ends_may_be_left_out(void **state)
{
    (void)state;
    char spec[600];
    put("clip.txt", clip_merges, sizeof clip_merges - 1);
    snprintf(spec, sizeof spec, "%s?ends=no", at("clip.txt"));
    DpcToken *t = token(spec);
    gives(t, "red boot", 516, 514, -1);
    gives(t, "", -1);
    dpc_token_close(t);
}

/* Whatever byte is another: it opens, or is refused. */
static void damaged_files_never_crash(void **state)
{
    (void)state;
    static uint8_t b[1 << 16];
    DpcToken *t;
    qwen_put("t.json", -1, -1, NULL);
    size_t n = get("t.json", b, sizeof b);
    for (size_t i = 0; i < n; i += 7) {
        b[i] ^= (uint8_t)(1 + i % 31);
        put("t.json", b, n);
        b[i] ^= (uint8_t)(1 + i % 31);
        if (dpc_token_open(at("t.json"), &t))
            says("t.json");
        else
            dpc_token_close(t);
    }
}

static void a_long_word_takes_no_square(void **state)
{
    (void)state;
    enum { N = 100000 };
    const int32_t *id;
    int64_t n;
    char *text = malloc(N);
    put("clip.txt", clip_merges, sizeof clip_merges - 1);
    DpcToken *t = token(at("clip.txt"));
    for (int i = 0; i < N; i++)
        text[i] = "boot"[i % 4];
    assert_int_equal(dpc_token_ids(t, text, N, &id, &n), DPC_OK);
    assert_int_equal(id[1], 512);               /* "bo" "o" "t" ... "boot" */
    assert_int_equal(id[n - 2], 514);
    assert_int_equal(n, 2 + 3 * (N / 4 - 1) + 1);
    int64_t bytes = dpc_token_bytes(t);
    assert_int_equal(dpc_token_ids(t, "a", 1, &id, &n), DPC_OK);
    assert_int_equal(dpc_token_bytes(t), bytes);
    dpc_token_close(t);
    free(text);
}

static void what_is_no_text_is_refused(void **state)
{
    (void)state;
    const int32_t *id;
    int64_t n;
    put("clip.txt", clip_merges, sizeof clip_merges - 1);
    DpcToken *t = token(at("clip.txt"));
    assert_int_equal(dpc_token_ids(t, "ab\xff", 3, &id, &n), DPC_USER);
    says("byte 2, 0xff, is not UTF-8");
    dpc_token_close(t);
}

static void files_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    token_refuses(at("none"), "No such file", "vocab.json and merges.txt");
    mkdir(at("d"), 0700);
    token_refuses(at("d"), "neither tokenizer.json", "is in the folder");
    put("d/vocab.json", "{\"a\": 0}", 8);
    token_refuses(at("d"), "d/merges.txt: error", "give both");
    put("d/merges.txt", "a b\n", 4);
    token_refuses(at("d"), "merge 0, \"a b\": the second is not in the "
                  "vocabulary of 1 tokens", "from one place");
    put("d/merges.txt", "ab\n", 3);
    token_refuses(at("d"), "merge 0, \"ab\", is not two tokens", "d/merges");
    put("d/vocab.json", "{\"a\": -1}", 9);
    token_refuses(at("d"), "token \"a\" has no id", "from 0");
    put("d/vocab.json", "{\"a\": 0,}", 9);
    token_refuses(at("d"), "vocab.json:1", "fetch the file again");
    static const char twice[] = "{\"a\": 0, \"b\": 0}";
    put("d/vocab.json", twice, sizeof twice - 1);
    token_refuses(at("d"), "two tokens have the id 0", "fetch the file again");
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1";
    put("d/vocab.json", pointer, sizeof pointer - 1);
    token_refuses(at("d"), "vocab.json: error", "a git-lfs pointer");
    static const char drawn[] =
        "{\"model\": {\"type\": \"BPE\", \"dropout\": 0.5}}";
    put("drawn.json", drawn, sizeof drawn - 1);
    token_refuses(at("drawn.json"), "dropout 0.5 is not done", "null");
    qwen_put("lost.json", 'x', -1, NULL);
    token_refuses(at("lost.json"), "no token for byte 0x78", "all 256");
    put("clip.txt", clip_merges, sizeof clip_merges - 1);
    put("bpe_simple_vocab_16e6.txt", clip_merges, sizeof clip_merges - 1);
    token_refuses(at("bpe_simple_vocab_16e6.txt"), "breaks off after 10 merges",
                  "there are 48894");
    gzFile z = gzopen(at("cut.gz"), "wb");
    gzwrite(z, clip_merges, sizeof clip_merges - 1);
    gzclose(z);
    uint8_t b[256];
    put("cut.gz", b, get("cut.gz", b, sizeof b) - 9);
    token_refuses(at("cut.gz"), "cannot be read or unpacked", "fetch it");
    char spec[600];
    snprintf(spec, sizeof spec, "%s?pad=99999", at("clip.txt"));
    token_refuses(spec, "pad=99999", "below 524");
    snprintf(spec, sizeof spec, "%s?len=3", at("clip.txt"));
    token_refuses(spec, "len=3", "wanted length=N");
}

static void merges_that_were_cut_off_are_told(void **state)
{
    (void)state;
    FILE *f = fopen(at("vocab.json"), "w");
    char c[8];
    for (int b = 0; b < 256; b++)
        fprintf(f, "%s\"%s\": %d", b ? ", " : "{", letter(b, c), b);
    for (int i = 0; i < 1000; i++)
        fprintf(f, ", \"%c%c%c\": %d", 'a' + i / 100, 'a' + i / 10 % 10,
                'a' + i % 10, 256 + i);
    fprintf(f, ", \"aa\": 1256}");
    fclose(f);
    put("merges.txt", "a a\naa a\n", 9);
    token_refuses(temp_dir, "merges.txt: error", "it makes 2 of the "
                  "vocabulary's 1257 tokens; was it cut off?");
}

static void what_is_not_done_is_named(void **state)
{
    (void)state;
    static const struct { int part; const char *text, *says; } c[] = {
        {0, "\"added_tokens\": [{\"id\": 1, \"content\": \"<m>\", \"lstrip\": "
            "true}]", "added token \"<m>\" with \"lstrip\""},
        {1, "\"normalizer\": {\"type\": \"NFKC\"}", "normalizer \"NFKC\""},
        {2, "\"pre_tokenizer\": {\"type\": \"Metaspace\"}",
            "pre_tokenizer \"Metaspace\""},
        {2, "\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated"
            "\", \"pattern\": {\"Regex\": \"(\"}}", "pattern \"(\""},
        {2, "\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Merged"
            "WithNext\", \"pattern\": {\"Regex\": \"a\"}}", "MergedWithNext"},
        {2, "\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated"
            "\", \"pattern\": {\"Regex\": \"a\"}}", "are not bytes"},
        {3, "\"post_processor\": {\"type\": \"Other\"}",
            "post_processor \"Other\""},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        qwen_put("t.json", -1, c[i].part, c[i].text);
        token_refuses(at("t.json"), c[i].says, "t.json");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_small_clip_gives_its_ids), CASE(a_small_qwen_gives_its_ids),
        CASE(the_older_files_give_the_same), CASE(rows_are_cut_and_padded),
        CASE(html_is_undone_in_openais_form),
        CASE(typography_becomes_plain),
        CASE(ends_may_be_left_out), CASE(damaged_files_never_crash),
        CASE(a_long_word_takes_no_square), CASE(what_is_no_text_is_refused),
        CASE(files_that_do_not_fit_are_refused),
        CASE(merges_that_were_cut_off_are_told),
        CASE(what_is_not_done_is_named),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
