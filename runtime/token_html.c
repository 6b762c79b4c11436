/* token_html.c -- captions of the web, cleaned as OpenAI's code does: HTML
 * character references undone, and what of the package ftfy is not about texts
 * decoded wrongly: quotes made straight, ligatures and wide forms taken apart,
 * control characters left out.
 *
 * OpenAI's own tokenizer undoes them twice, since captions of the web hold
 * "&amp;quot;".  As in HTML5 (13.2.5.72-80) numbers and the names of Latin-1
 * may lack their semicolon, where nothing follows that could be part of a
 * longer name; of the newer names the punctuation is known that captions hold.
 * Any other stays as it is.  No reference is shorter than the character that
 * it stands for, so a text is rewritten in its place. */
#include "runtime/token_own.h"

#include <string.h>
#include <utf8proc.h>

/* U+00A0 to U+00FF, in order. */
static const char latin[] =
    "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy "
    "reg macr deg plusmn sup2 sup3 acute micro para middot cedil sup1 ordm "
    "raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring "
    "AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde "
    "Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml "
    "Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil "
    "egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve "
    "oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute "
    "thorn yuml ";

static const struct { const char *name; int32_t point; } names[] = {
    {"amp", '&'}, {"AMP", '&'}, {"lt", '<'}, {"LT", '<'}, {"gt", '>'},
    {"GT", '>'}, {"quot", '"'}, {"QUOT", '"'}, {"COPY", 0xa9}, {"REG", 0xae},
    {"apos;", '\''}, {"ndash;", 0x2013}, {"mdash;", 0x2014},
    {"lsquo;", 0x2018}, {"rsquo;", 0x2019}, {"sbquo;", 0x201a},
    {"ldquo;", 0x201c}, {"rdquo;", 0x201d}, {"bdquo;", 0x201e},
    {"bull;", 0x2022}, {"hellip;", 0x2026}, {"prime;", 0x2032},
    {"euro;", 0x20ac}, {"trade;", 0x2122},
};
enum { NNAME = sizeof names / sizeof *names };

/* What browsers read 128 to 159 as: Windows' 1252. */
static const int32_t windows[32] = {
    0x20ac, 0x81, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,
    0x2030, 0x160, 0x2039, 0x152, 0x8d, 0x17d, 0x8f, 0x90, 0x2018, 0x2019,
    0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x2dc, 0x2122, 0x161, 0x203a,
    0x153, 0x9d, 0x17e, 0x178,
};

static bool is_name(const char *s, int64_t n, const char *name, size_t k)
{
    return (int64_t)k == n && !memcmp(s, name, k);
}

/* The length of the known name at s; 0: none. */
static int64_t name_at(const char *s, int64_t n, int32_t *point)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    int64_t k = 0;
    while (k < n && s[k] && strchr(letters, s[k]))
        k++;
    int64_t closed = k + (k < n && s[k] == ';');
    for (int i = 0; i < NNAME; i++) {
        size_t size = strlen(names[i].name);
        *point = names[i].point;
        if (is_name(s, k, names[i].name, size) ||
            is_name(s, closed, names[i].name, size))
            return closed;
    }
    *point = 0xa0;
    for (const char *p = latin; *p; p += strcspn(p, " ") + 1, ++*point)
        if (is_name(s, k, p, strcspn(p, " ")))
            return closed;
    return 0;
}

static int digit(char c, int base)
{
    int d = c >= '0' && c <= '9' ? c - '0'
          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : base;
    return d < base ? d : -1;
}

/* "#38", "#x26" at s; point -1: stands for no character. */
static int64_t number_at(const char *s, int64_t n, int32_t *point)
{
    enum { LAST = 0x10ffff, REPLACEMENT = 0xfffd };
    bool hex = n > 1 && (s[1] | 32) == 'x';
    int64_t begin = 1 + hex, i = begin, c = 0;
    int base = hex ? 16 : 10;
    for (; i < n && digit(s[i], base) >= 0; i++)
        c = c > LAST ? c : c * base + digit(s[i], base);
    bool none = (c > 0 && c < 9) || c == 0xb || (c > 0xd && c < 0x20) ||
                c == 0x7f || (c >= 0xfdd0 && c <= 0xfdef) ||
                (c <= LAST && (c & 0xfffe) == 0xfffe);
    *point = c == 0 || c > LAST || (c >= 0xd800 && c < 0xe000) ? REPLACEMENT
           : c >= 128 && c < 160 ? windows[c - 128] : none ? -1 : (int32_t)c;
    return i == begin ? 0 : i + (i < n && s[i] == ';');
}

int64_t dpc_token_html(char *text, int64_t n)
{
    int64_t m = 0;
    for (int64_t i = 0; i < n;) {
        int32_t c = -1;
        const char *s = text + i + 1;
        int64_t left = n - i - 1;
        int64_t k = text[i] != '&' || !left ? 0
                  : *s == '#' ? number_at(s, left, &c) : name_at(s, left, &c);
        if (!k) {
            text[m++] = text[i++];
            continue;
        }
        i += 1 + k;
        if (c >= 0)
            m += utf8proc_encode_char(c, (utf8proc_uint8_t *)text + m);
    }
    return m;
}

/* ---- typography ---- */

static const struct { int32_t point; const char *is; } ligatures[] = {
    {0x132, "IJ"}, {0x133, "ij"}, {0x149, "'n"}, {0x1f1, "DZ"}, {0x1f2, "Dz"},
    {0x1f3, "dz"}, {0x1c7, "LJ"}, {0x1c8, "Lj"}, {0x1c9, "lj"}, {0x1ca, "NJ"},
    {0x1cb, "Nj"}, {0x1cc, "nj"}, {0xfb00, "ff"}, {0xfb01, "fi"},
    {0xfb02, "fl"}, {0xfb03, "ffi"}, {0xfb04, "ffl"}, {0xfb05, "\u017ft"},
    {0xfb06, "st"},
};
enum { NLIGATURE = sizeof ligatures / sizeof *ligatures };

static bool within(int32_t c, int32_t first, int32_t last)
{
    return c >= first && c <= last;
}

static bool is_control(int32_t c)
{
    return within(c, 0, 8) || c == 0xb || within(c, 0xe, 0x1f) || c == 0x7f ||
           within(c, 0x206a, 0x206f) || c == 0xfeff ||
           within(c, 0xfff9, 0xfffc);
}

/* What a character becomes, as bytes; NULL: it stays.  Never longer. */
static const char *tidied(int32_t c, char to[16])
{
    utf8proc_int32_t part[4];
    bool wide = within(c, 0xff01, 0xffef) || c == 0x3000;
    for (int i = 0; i < NLIGATURE; i++)
        if (ligatures[i].point == c)
            return ligatures[i].is;
    if (within(c, 0x2018, 0x201b) || c == 0x2bc)
        return "'";
    if (within(c, 0x201c, 0x201f) || is_control(c))
        return is_control(c) ? "" : "\"";
    if (!wide)
        return NULL;
    int64_t n = utf8proc_decompose_char(c, part, 4, UTF8PROC_DECOMPOSE |
                                        UTF8PROC_COMPAT, NULL), m = 0;
    for (int64_t i = 0; i < n && i < 4; i++)
        m += utf8proc_encode_char(part[i], (utf8proc_uint8_t *)to + m);
    to[m] = 0;
    return to;
}

int64_t dpc_token_tidy(char *text, int64_t n)
{
    int64_t m = 0;
    for (int64_t i = 0; i < n;) {
        utf8proc_int32_t c = -1;
        int64_t k = utf8proc_iterate((utf8proc_uint8_t *)text + i, n - i, &c);
        char own[16];
        const char *is = k > 0 ? tidied(c, own) : NULL;
        size_t size = is ? strlen(is) : (size_t)(k > 0 ? k : 1);
        memmove(text + m, is ? is : text + i, size);
        m += (int64_t)size, i += k > 0 ? k : 1;
    }
    return m;
}
