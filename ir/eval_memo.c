/* eval_memo.c -- values of several runs, each made once.
 *
 * Value numbering (Cocke and Schwartz, "Programming Languages and Their
 * Compilers", 1970) over whole graphs: a number stands for an op with its
 * attributes, type and place on the mesh, applied to numbers.  What a pass
 * left as it was is found again, and only what it changed is evaluated. */
#include "ir/eval_node.h"
#include "ir/field.h"

typedef struct Made {
    int number;                           /* 0: free */
    const Node *node;
    const int *in;                        /* numbers of its operands */
    Spot spot;
    Val val;
} Made;

struct EvalMemo {
    Arena *arena;
    Mesh mesh;                            /* of all that is found */
    Made *slot;                           /* by hash */
    uint32_t size, used;                  /* size: a power of two */
    int last;                             /* number given */
    int64_t found;
};

EvalMemo *eval_memo_new(void)
{
    Arena *a = arena_new();
    EvalMemo *m = alloc(a, sizeof *m);
    m->arena = a;
    return m;
}

void eval_memo_free(EvalMemo *m) { arena_free(m->arena); }

int64_t eval_memo_found(const EvalMemo *m) { return m->found; }

Arena *memo_arena(const EvalMemo *m) { return m->arena; }

int memo_number(EvalMemo *m) { return ++m->last; }

static bool mesh_equal(const Mesh *a, const Mesh *b)
{
    bool same = a->naxis == b->naxis;
    for (int i = 0; same && i < a->naxis; i++)
        same = a->axis[i].size == b->axis[i].size
            && a->axis[i].kind == b->axis[i].kind;
    return same;
}

void memo_mesh(EvalMemo *m, const Mesh *mesh)
{
    if (m->size && mesh_equal(&m->mesh, mesh))
        return;
    m->mesh = *mesh;
    m->size = 1 << 10, m->used = 0;
    m->slot = alloc(m->arena, m->size * sizeof *m->slot);
}

static uint64_t hash_of(const Node *n, const int *in)
{
    uint64_t h = field_hash((uint64_t)n->op, (uint64_t)n->attr.id);
    h = n->attr.sig ? h ^ field_key(n->attr.sig) : h;
    h = n->nin ? h : h ^ field_key(n->name);
    for (int i = 0; i < n->nin; i++)
        h = field_hash(h, (uint64_t)in[i]);
    for (int d = 0; d < n->type.ndim; d++)
        h = field_hash(h, (uint64_t)n->type.dim[d] ^ n->type.split[d] << 32);
    return h;
}

static bool spot_equal(const Spot *a, const Spot *b)
{
    return a->axes == b->axes && a->stage == b->stage && a->role == b->role
        && a->from == b->from;
}

/* Leaves are told apart by their names. */
static bool alike(const Made *m, const Node *n, const int *in, const Spot *s)
{
    const Node *o = m->node;
    return o->op == n->op && o->nin == n->nin && spot_equal(&m->spot, s)
        && (!n->nin || memcmp(m->in, in, (size_t)n->nin * sizeof *in) == 0)
        && type_equal(&o->type, &n->type) && attr_equal(&o->attr, &n->attr)
        && (!ops[n->op].leaf || strcmp(o->name, n->name) == 0);
}

/* The entry that is alike, or the free one where it would stand. */
static Made *find(const EvalMemo *m, const Node *n, const int *in,
                  const Spot *s)
{
    uint64_t h = hash_of(n, in);
    while (m->slot[h & (m->size - 1)].number
           && !alike(&m->slot[h & (m->size - 1)], n, in, s))
        h++;
    return &m->slot[h & (m->size - 1)];
}

int memo_find(EvalMemo *m, const Node *n, const int *in, const Spot *s,
              Val *val)
{
    const Made *made = find(m, n, in, s);
    if (made->number)
        *val = made->val, m->found++;
    return made->number;
}

static void grow(EvalMemo *m)
{
    Made *was = m->slot;
    uint32_t n = m->size;
    m->size *= 2;
    m->slot = alloc(m->arena, m->size * sizeof *m->slot);
    for (uint32_t i = 0; i < n; i++)
        if (was[i].number)
            *find(m, was[i].node, was[i].in, &was[i].spot) = was[i];
    arena_drop(m->arena, was);
}

int memo_add(EvalMemo *m, const Node *n, const int *in, const Spot *s, Val val)
{
    if (++m->used * 2 > m->size)
        grow(m);
    Made *made = find(m, n, in, s);
    *made = (Made){ memo_number(m), n, in, *s, val };
    return made->number;
}
