/* atom.c -- one loop for dimensions that are the same, by unification.
 *
 * Every letter of every node starts as an atom.  An edge says that a
 * dimension of the producer is a dimension of the consumer: two lists of
 * atoms with one product.  From the inner end, equal extents become one atom
 * (union-find), and a larger one that the other divides is cut in two, for
 * all who see it.  What neither divides cannot be one loop nest. */
#include "codegen/kernel.h"

int atom_new(Unify *u, int64_t extent)
{
    if (u->n == BATOM)
        return -1;
    u->atom[u->n].n = extent;
    u->atom[u->n].same = u->n;
    u->atom[u->n].outer = u->atom[u->n].inner = -1;
    return u->n++;
}

static int find(Unify *u, int a)
{
    while (u->atom[a].same != a)
        a = u->atom[a].same = u->atom[u->atom[a].same].same;
    return a;
}

static bool leaves(Unify *u, int a, int *out, int *n, int max)
{
    a = find(u, a);
    if (u->atom[a].outer >= 0)
        return leaves(u, u->atom[a].outer, out, n, max)
            && leaves(u, u->atom[a].inner, out, n, max);
    if (u->atom[a].n == 1)
        return true;
    if (*n == max)
        return false;
    out[(*n)++] = a;
    return true;
}

int atom_leaves(Unify *u, const int *list, int n, int *out, int max)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (!leaves(u, list[i], out, &k, max))
            return -1;
    return k;
}

/* Cut atom a into (outer, inner of extent n). */
static bool cut(Unify *u, int a, int64_t n)
{
    int outer = atom_new(u, u->atom[a].n / n), inner = atom_new(u, n);
    if (outer < 0 || inner < 0)
        return false;
    u->atom[a].outer = outer;
    u->atom[a].inner = inner;
    return true;
}

bool atom_unify(Unify *u, const int *a, int na, const int *b, int nb)
{
    for (;;) {
        int x[KATOM], y[KATOM];
        int nx = atom_leaves(u, a, na, x, KATOM);
        int ny = atom_leaves(u, b, nb, y, KATOM);
        if (nx < 0 || ny < 0)
            return false;
        while (nx && ny && x[nx - 1] == y[ny - 1])
            nx--, ny--;
        if (!nx || !ny)
            return nx == ny;
        int p = x[nx - 1], q = y[ny - 1];
        int64_t n = u->atom[p].n, m = u->atom[q].n;
        if (n == m)
            u->atom[q].same = p;
        else if (n > m ? n % m != 0 || !cut(u, p, m)
                       : m % n != 0 || !cut(u, q, n))
            return false;
    }
}
