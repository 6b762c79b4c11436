/* base.c -- errors, the arena, growing arrays, names.
 *
 * An arena is a list of zeroed blocks, freed at once: hardly a value of the
 * compiler is freed alone.  A large request gets a block of its own, behind the
 * top one, so that the top keeps its room; only such can be dropped early, and
 * the last that was lies ready for who needs no zeros: a pass writes a graph
 * where the one before the last was, and the kernel clears no page for it.
 * Blocks of megabytes ask for huge pages: the graphs of a large model are
 * written once each, and a page fault for every nine nodes is an eighth of the
 * time. */
#include "ir/base.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- errors ---- */

static _Thread_local ErrTrap *trap;
static _Thread_local int traps;           /* how many stand open */
static void arenas_outlive(void);
static void arenas_end(void);
static _Thread_local char notes[2048];    /* each with its leading newline */
void (*die_dump)(FILE *);
_Thread_local void (*err_wait)(void);

void err_push(ErrTrap *t)
{
    t->outer = trap, t->code = 0, t->text[0] = 0;
    trap = t;
    traps++;
}

void err_pop(void)
{
    if (!trap)
        die("err_pop without err_push");
    trap = trap->outer;
    traps--;
    arenas_outlive();
}

static _Noreturn void fail(int code, const char *loc, const char *f,
                           va_list ap)
{
    char text[sizeof trap->text];
    int size = sizeof text;
    int n = snprintf(text, sizeof text, "%s: error: ", loc ? loc : "dpc");
    if (n < size)
        n += vsnprintf(text + n, (size_t)(size - n), f, ap);
    if (n < size)
        snprintf(text + n, (size_t)(size - n), "%s", notes);
    notes[0] = 0;
    if (trap) {
        if (err_wait)
            err_wait();
        ErrTrap *t = trap;
        trap = t->outer;
        t->code = code;
        memcpy(t->text, text, sizeof text);
        traps--;
        arenas_end();
        longjmp(t->jump, 1);
    }
    fflush(stdout);
    fprintf(stderr, "%s\n", text);
    exit(code);
}

_Noreturn void err(const char *loc, const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    fail(1, loc, f, ap);
}

_Noreturn void err_code(int code, const char *loc, const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    fail(code, loc, f, ap);
}

void note(const char *loc, const char *f, ...)
{
    size_t n = strlen(notes);
    va_list ap;
    va_start(ap, f);
    int k = snprintf(notes + n, sizeof notes - n, "\n%s: note: ",
                     loc ? loc : "dpc");
    if (k > 0 && n + (size_t)k < sizeof notes)
        vsnprintf(notes + n + k, sizeof notes - n - (size_t)k, f, ap);
    va_end(ap);
}

/* The dump runs on broken data and may die in turn: once only. */
static void crash_dump(void)
{
    void (*dump)(FILE *) = die_dump;
    die_dump = NULL;
    FILE *f = dump ? fopen("dpc-crash.ir", "w") : NULL;
    if (!f)
        return;
    dump(f);
    if (fclose(f) == 0)
        fputs("dpc: note: the graph is in \"dpc-crash.ir\"; please report it\n",
              stderr);
}

_Noreturn void die_(const char *file, int line, const char *f, ...)
{
    fflush(stdout);
    fprintf(stderr, "%s:%d: internal error: ", file, line);
    va_list ap;
    va_start(ap, f);
    vfprintf(stderr, f, ap);
    va_end(ap);
    fprintf(stderr, "%s\n", notes);
    crash_dump();
    exit(70);
}

/* ---- arena ---- */

enum { BLOCK = 1 << 16, HUGE_PAGE = 1 << 21 };
typedef struct Block Block;
struct Block {
    Block *next;
    size_t used, size, mapped;            /* mapped: bytes of mmap; 0: heap */
    bool own;                             /* of one request */
    max_align_t data[];
};

struct Arena {
    Arena *older, *newer;                 /* of those that an error may end */
    int traps;                            /* in so many it was made; 0: none
                                             ends it */
    Block *top, *spare;                   /* spare: a dropped one, or NULL */
    size_t shared;                        /* bytes of the last shared block */
    const char **name;                    /* open hash table of intern */
    uint32_t nname, cap;                  /* cap: 0 or a power of two */
};

static _Thread_local Arena *newest;       /* deeper traps stand first */

Arena *arena_lasting(void)
{
    Arena *a = calloc(1, sizeof *a);
    if (!a)
        err_code(3, NULL, "out of memory");
    return a;
}

Arena *arena_new(void)
{
    Arena *a = arena_lasting();
    a->traps = traps;
    if (!traps)
        return a;
    a->older = newest;
    if (newest)
        newest->newer = a;
    newest = a;
    return a;
}

static void arena_unlink(Arena *a)
{
    if (a->older)
        a->older->newer = a->newer;
    if (a->newer)
        a->newer->older = a->older;
    else if (newest == a)
        newest = a->older;
    a->older = a->newer = NULL;
}

/* What was made within a trap that is closed belongs to the next. */
static void arenas_outlive(void)
{
    for (Arena *a = newest; a && a->traps > traps; a = a->older)
        a->traps = traps;
    while (newest && !newest->traps)
        arena_unlink(newest);
}

/* Nobody is left who would free what was made within the trap. */
static void arenas_end(void)
{
    while (newest && newest->traps > traps)
        arena_free(newest);
}

/* Zeroed, at a multiple of a huge page; NULL where there is none. */
static void *map_huge(size_t n)
{
    size_t page = HUGE_PAGE;
    char *p = mmap(NULL, n + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t skip = (page - (uintptr_t)p % page) % page;
    if (skip)
        munmap(p, skip);
    munmap(p + skip + n, page - skip);
    madvise(p + skip, n, MADV_HUGEPAGE);
    return p + skip;
}

/* A leak is what nothing points to, and LeakSanitizer looks for no pointers in
 * what was mapped. */
#ifdef __SANITIZE_ADDRESS__
enum { LEAKS = 1 };
#else
enum { LEAKS = 0 };
#endif

static Block *block_new(size_t size, bool own)
{
    size_t page = HUGE_PAGE, all = sizeof(Block) + size;
    size_t mapped = all < page || LEAKS ? 0 : (all + page - 1) / page * page;
    Block *b = mapped ? map_huge(mapped) : calloc(1, all);
    if (!b)
        err_code(3, NULL, "out of memory: a block of %zu bytes", size);
    b->size = size, b->mapped = mapped, b->own = own;
    return b;
}

static void block_free(Block *b)
{
    if (b->mapped)
        munmap(b, b->mapped);
    else
        free(b);
}

/* Twice the last one, up to a huge page: many small requests fault no more
 * often than a large one. */
static Block *block_shared(Arena *a)
{
    a->shared = a->shared ? 2 * a->shared : BLOCK;
    if (a->shared > HUGE_PAGE)
        a->shared = HUGE_PAGE;
    return block_new(a->shared - sizeof(Block), false);
}

static void *block_add(Arena *a, Block *b)
{
    Block **at = b->own && a->top ? &a->top->next : &a->top;
    b->next = *at, *at = b;
    return b->data;
}

void *alloc(Arena *a, size_t n)
{
    size_t align = _Alignof(max_align_t);
    n = (n + align - 1) / align * align;
    Block *b = a->top;
    if (b && b->size - b->used >= n) {
        void *p = (char *)b->data + b->used;
        b->used += n;
        return p;
    }
    bool big = n > BLOCK / 4;
    b = big ? block_new(n, true) : block_shared(a);
    b->used = n;
    return block_add(a, b);
}

/* The spare block, if there is one of n bytes; it is free otherwise. */
static Block *block_again(Arena *a, size_t n)
{
    Block *b = a->spare;
    a->spare = NULL;
    if (b && b->mapped - sizeof *b < n) {
        block_free(b);
        b = NULL;
    }
    return b;
}

void *alloc_raw(Arena *a, size_t n)
{
    Block *b = n > HUGE_PAGE ? block_again(a, n) : NULL;
    if (!b)
        return alloc(a, n);
    b->used = b->size = n;
    return block_add(a, b);
}

/* What was mapped is kept, in the place of what was before. */
static void block_drop(Arena *a, Block *b)
{
    Block *old = b->mapped ? a->spare : b;
    a->spare = b->mapped ? b : a->spare;
    if (old)
        block_free(old);
}

void arena_drop(Arena *a, const void *p)
{
    for (Block **b = &a->top; *b; b = &(*b)->next)
        if ((void *)(*b)->data == p && (*b)->own) {
            Block *old = *b;
            *b = old->next;
            block_drop(a, old);
            return;
        }
}

ArenaMark arena_mark(Arena *a)
{
    if (!a->top)
        alloc(a, 1);
    return (ArenaMark){ a->top, a->top->next, a->top->used };
}

static void blocks_free(Block *b, const Block *end)
{
    for (Block *next; b != end; b = next) {
        next = b->next;
        block_free(b);
    }
}

void arena_rewind(Arena *a, ArenaMark m)
{
    Block *top = m.top;
    blocks_free(a->top, top);
    blocks_free(top->next, m.below);
    top->next = m.below;
    memset((char *)top->data + m.used, 0, top->used - m.used);
    top->used = m.used;
    a->top = top;
}

void arena_free(Arena *a)
{
    if (!a)
        return;
    arena_unlink(a);
    blocks_free(a->top, NULL);
    if (a->spare)
        block_free(a->spare);
    free(a->name);
    free(a);
}

void grow_(Arena *a, void **p, size_t each, uint32_t *cap, size_t want)
{
    size_t more = *cap ? (size_t)*cap * 2 : 8;
    if (more < want)
        more = want;
    if (more > UINT32_MAX)
        err_code(3, NULL, "out of memory: an array of %zu elements", more);
    void *q = alloc(a, more * each);
    if (*cap)
        memcpy(q, *p, *cap * each);
    *p = q;
    *cap = (uint32_t)more;
}

/* ---- text ---- */

void str_put(Str *s, const char *p, size_t n)
{
    GROW(s->arena, s->p, s->n + n, s->cap);           /* and the NUL */
    memcpy(s->p + s->n, p, n);
    s->n += (uint32_t)n;
    s->p[s->n] = 0;
}

char *int_text(char out[20], uint64_t v)
{
    char text[20], *p = text + sizeof text;
    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    size_t n = (size_t)(text + sizeof text - p);
    memcpy(out, p, n);
    return out + n;
}

void str_int(Str *s, int64_t v)
{
    char text[21] = "-";
    uint64_t size = v < 0 ? -(uint64_t)v : (uint64_t)v;
    str_put(s, text, (size_t)(int_text(text + (v < 0), size) - text));
}

static void put_rest(Str *s, const char *f, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int k = vsnprintf(NULL, 0, f, again);
    va_end(again);
    if (k < 0)
        die("a text that printf cannot print");
    GROW(s->arena, s->p, s->n + (uint32_t)k, s->cap);
    vsnprintf(s->p + s->n, (size_t)k + 1, f, ap);
    s->n += (uint32_t)k;
}

/* What a directive that stands here most often makes of its argument; its
 * length, or 0: it is printf's. */
static int put_one(Str *s, const char *f, va_list *ap)
{
    const char *p;
    switch (*f) {
    case 's':
        p = va_arg(*ap, const char *);
        str_put(s, p, strlen(p));
        return 1;
    case 'd':
        str_int(s, va_arg(*ap, int));
        return 1;
    case 'u':
        str_int(s, va_arg(*ap, unsigned));
        return 1;
    case 'c':
        str_put(s, &(char){ (char)va_arg(*ap, int) }, 1);
        return 1;
    case 'l':
        if (strncmp(f, "lld", 3) != 0)
            return 0;
        str_int(s, va_arg(*ap, long long));
        return 3;
    default:
        return 0;
    }
}

/* Graphs of 10^5 nodes are texts of 10^7 characters, in pieces of a name or a
 * number: those are put without printf, which has the rest. */
void str_addv(Str *s, const char *f, va_list *ap)
{
    for (;;) {
        size_t n = 0;
        while (f[n] && f[n] != '%')
            n++;
        str_put(s, f, n);
        f += n;
        if (!*f)
            return;
        int k = put_one(s, f + 1, ap);
        if (!k)
            break;
        f += 1 + k;
    }
    put_rest(s, f, *ap);
}

void str_add(Str *s, const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    str_addv(s, f, &ap);
    va_end(ap);
}

char *fmt(Arena *a, const char *f, ...)
{
    Str s = { .arena = a };
    va_list ap;
    va_start(ap, f);
    str_addv(&s, f, &ap);
    va_end(ap);
    return s.p;
}

/* ---- names ---- */

static uint32_t hash(const char *s)       /* FNV-1a */
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

static const char **slot(Arena *a, const char *s)
{
    uint32_t i = hash(s) & (a->cap - 1);
    while (a->name[i] && strcmp(a->name[i], s) != 0)
        i = (i + 1) & (a->cap - 1);
    return &a->name[i];
}

static void rehash(Arena *a)
{
    const char **old = a->name;
    uint32_t n = a->cap;
    a->cap = n ? n * 2 : 256;
    a->name = calloc(a->cap, sizeof *a->name);
    if (!a->name)
        err_code(3, NULL, "out of memory: %u names", a->cap);
    for (uint32_t i = 0; i < n; i++)
        if (old[i])
            *slot(a, old[i]) = old[i];
    free(old);
}

const char *intern(Arena *a, const char *s)
{
    if (2 * (a->nname + 1) > a->cap)
        rehash(a);
    const char **at = slot(a, s);
    if (!*at) {
        *at = fmt(a, "%s", s);
        a->nname++;
    }
    return *at;
}
