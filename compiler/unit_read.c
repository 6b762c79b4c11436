/* unit_read.c -- the tables of an emitted binary, read back from its file.
 *
 * Nothing of the file runs: its segments are laid out in memory as the loader
 * would, and the addresses in them moved to where they came to lie (ELF, "Base
 * Relocation": word = base + addend).  The unit is a section of its own, which
 * `strip` leaves alone.  Pointers are looked at before they are followed, and
 * what the tables say of each other is then proven as at any start, by
 * dpc_check; so a damaged file ends in an error. */
#include "compiler/inspect.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IMAGE_MOST = 1 << 30 };            /* bytes of a laid out binary */

typedef struct Image {
    const char *path;
    const char *file;                     /* its bytes */
    size_t bytes;
    char *at;                             /* laid out */
    size_t size;
} Image;

_Noreturn static void none(const Image *m, const char *why)
{
    err(m->path, "is no binary that dpc made: %s", why);
}

/* n bytes of the file. */
static const void *file_at(const Image *m, uint64_t at, uint64_t n)
{
    if (at > m->bytes || n > m->bytes - at)
        none(m, "it is cut off");
    return m->file + at;
}

static void file_map(Image *m, Arena *a)
{
    struct stat st;
    int fd = open(m->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        err(m->path, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        none(m, "it is no file");
    char *x = alloc(a, (size_t)st.st_size + 1);
    for (ssize_t n; (n = read(fd, x + m->bytes,
                              (size_t)st.st_size - m->bytes)) > 0;)
        m->bytes += (size_t)n;
    close(fd);
    m->file = x;
}

static const Elf64_Ehdr *head_check(const Image *m)
{
    if (m->bytes < sizeof(Elf64_Ehdr)
        || memcmp(m->file, ELFMAG, SELFMAG) != 0)
        none(m, "it is no program");
    const Elf64_Ehdr *h = (const void *)m->file;
    if (h->e_ident[EI_CLASS] != ELFCLASS64
        || h->e_ident[EI_DATA] != ELFDATA2LSB
        || h->e_phentsize != sizeof(Elf64_Phdr)
        || h->e_shentsize != sizeof(Elf64_Shdr))
        none(m, "it is no little-endian program of 64 bits");
    if (h->e_type != ET_DYN)
        none(m, "it is linked to fixed addresses");
    return h;
}

/* ---- laid out ---- */

static void segments_lay(Image *m, const Elf64_Ehdr *h, Arena *a)
{
    const Elf64_Phdr *p = file_at(m, h->e_phoff,
                                  h->e_phnum * sizeof *p);
    for (int i = 0; i < h->e_phnum; i++) {
        if (p[i].p_type != PT_LOAD)
            continue;
        if (p[i].p_vaddr > IMAGE_MOST || p[i].p_memsz > IMAGE_MOST
            || p[i].p_filesz > p[i].p_memsz)
            none(m, "its segments make no sense");
        uint64_t end = p[i].p_vaddr + p[i].p_memsz;
        m->size = end > m->size ? end : m->size;
    }
    m->at = alloc(a, m->size + 1);        /* + 1: each text ends */
    for (int i = 0; i < h->e_phnum; i++)
        if (p[i].p_type == PT_LOAD)
            memcpy(m->at + p[i].p_vaddr,
                   file_at(m, p[i].p_offset, p[i].p_filesz), p[i].p_filesz);
}

static void relocate(Image *m, const Elf64_Ehdr *h, const Elf64_Shdr *s)
{
    uint32_t relative = h->e_machine == EM_AARCH64 ? R_AARCH64_RELATIVE
                      : R_X86_64_RELATIVE;
    const Elf64_Rela *r = file_at(m, s->sh_offset, s->sh_size);
    for (uint64_t i = 0; i < s->sh_size / sizeof *r; i++) {
        if (ELF64_R_TYPE(r[i].r_info) != relative)
            continue;
        if (m->size < 8 || r[i].r_offset > m->size - 8
            || (uint64_t)r[i].r_addend > m->size)
            none(m, "its relocations make no sense");
        const char *to = m->at + r[i].r_addend;
        memcpy(m->at + r[i].r_offset, &to, sizeof to);
    }
}

/* Moves all addresses; where the section of that name lies. */
static const void *sections_read(Image *m, const Elf64_Ehdr *h,
                                 const char *name, uint64_t bytes)
{
    const Elf64_Shdr *s = file_at(m, h->e_shoff, h->e_shnum * sizeof *s);
    const void *found = NULL;
    if (h->e_shstrndx >= h->e_shnum)
        none(m, "it has no sections");
    const Elf64_Shdr *names = &s[h->e_shstrndx];
    for (int i = 0; i < h->e_shnum; i++) {
        uint64_t at = names->sh_offset + s[i].sh_name, n = strlen(name) + 1;
        if (s[i].sh_type == SHT_RELA)
            relocate(m, h, &s[i]);
        if (at > m->bytes || n > m->bytes - at
            || memcmp(m->file + at, name, n) != 0)
            continue;
        if (s[i].sh_addr > m->size || bytes > m->size - s[i].sh_addr
            || bytes > s[i].sh_size || s[i].sh_addr % 8)
            none(m, "its tables are of another size");
        found = m->at + s[i].sh_addr;
    }
    return found;
}

/* ---- what the pointers point to ---- */

static void table_check(const Image *m, const void *p, uint64_t n, size_t size)
{
    const char *at = p;
    if (n && (at < m->at || at > m->at + m->size
              || n > (uint64_t)(m->at + m->size - at) / size))
        none(m, "its tables point out of it");
}

static void text_check(const Image *m, const char *s)
{
    if (s)
        table_check(m, s, 1, 1);
}

static void program_check(const Image *m, const DpcProgram *p)
{
    text_check(m, p->entry);
    table_check(m, p->step, p->nstep, sizeof *p->step);
    table_check(m, p->buf, p->nbuf, sizeof *p->buf);
    table_check(m, p->node, p->nnode, sizeof *p->node);
    table_check(m, p->port, p->nport, sizeof *p->port);
    table_check(m, p->held, p->nheld, sizeof *p->held);
    for (uint32_t i = 0; i < p->nnode; i++) {
        text_check(m, p->node[i].name);
        text_check(m, p->node[i].op);
        text_check(m, p->node[i].loc);
    }
    for (uint32_t i = 0; i < p->nstep; i++) {
        const DpcStep *q = &p->step[i];
        table_check(m, p->arg, (uint64_t)q->arg + q->narg, sizeof *p->arg);
        table_check(m, p->how, (uint64_t)q->arg + q->narg, sizeof *p->how);
        table_check(m, p->wait, (uint64_t)q->wait + q->nwait, sizeof *p->wait);
        table_check(m, p->pos, (uint64_t)q->pos + q->npos, sizeof *p->pos);
    }
}

static void unit_tables_check(const Image *m, const DpcUnit *u)
{
    const char *const text[] = { u->model, u->version, u->hash, u->meta };
    for (int i = 0; i < COUNT(text); i++)
        text_check(m, text[i]);
    table_check(m, u->axis, u->naxis, sizeof *u->axis);
    table_check(m, u->leaf, u->nleaf, sizeof *u->leaf);
    table_check(m, u->program, u->nprogram, sizeof *u->program);
    table_check(m, u->kernel, u->nkernel, sizeof *u->kernel);
    table_check(m, u->dot, u->ndot, sizeof *u->dot);
    table_check(m, u->conv, u->nconv, sizeof *u->conv);
    table_check(m, u->coll, u->ncoll, sizeof *u->coll);
    table_check(m, u->run, u->nrun, sizeof *u->run);
    if (u->naxis > DPC_NAXIS)
        none(m, "its mesh has too many axes");
    for (uint32_t i = 0; i < u->naxis; i++) {
        text_check(m, u->axis[i].name);
        if (u->axis[i].size < 1 || u->axis[i].size > 65536)
            none(m, "its mesh makes no sense");
    }
    for (uint32_t i = 0; i < u->nkernel; i++)
        text_check(m, u->kernel[i].name);
    for (uint32_t i = 0; i < u->nleaf; i++) {
        text_check(m, u->leaf[i].name);
        text_check(m, u->leaf[i].loc);
        text_check(m, u->leaf[i].doc);
    }
    table_check(m, u->leaves, (uint64_t)dpc_roles(u), sizeof *u->leaves);
    if (u->host_leaves)
        table_check(m, u->host_leaves, (uint64_t)dpc_roles(u),
                    sizeof *u->host_leaves);
    for (uint32_t i = 0; i < u->nprogram; i++)
        program_check(m, &u->program[i]);
}

const DpcUnit *unit_read(const char *path, Arena *a)
{
    Image m = { .path = path };
    file_map(&m, a);
    const Elf64_Ehdr *h = head_check(&m);
    segments_lay(&m, h, a);
    const DpcUnit *u = sections_read(&m, h, ".dpc_unit", sizeof u->abi);
    if (!u)
        none(&m, "it has no section \".dpc_unit\"");
    if (u->abi != DPC_ABI)
        err(path, "its tables have layout %d, and this dpc reads %d: compile "
            "it again", u->abi, DPC_ABI);
    sections_read(&m, h, ".dpc_unit", sizeof *u);
    unit_tables_check(&m, u);
    if (dpc_check(u))
        err(path, "its tables are damaged: %s", dpc_last_error());
    return u;
}
