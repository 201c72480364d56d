/* SPDX-License-Identifier: Apache-2.0 */
/* Changing one setting of gleam.conf and nothing else of it: comments, order and spaces stay as people wrote them. One thread. */
#ifndef GLEAMCTL_CONF_EDIT_H
#define GLEAMCTL_CONF_EDIT_H

#include <stddef.h>

/*
 * @text with `name = value` in [section]: in the place of the same name's line if there is one, else behind the section's
 * heading, else in a new section at the end. NULL: out of memory; else free() it.
 */
char *conf_edit(const char *text, const char *section, const char *name, const char *value);
/* The value that @name has in [section]; NULL: none. free() it. */
char *conf_value(const char *text, const char *section, const char *name);

/* The file's text; "" if it isn't there. NULL and *@err_out: -errno. free() it. */
char *conf_text(const char *path, int *err_out);
/* All of it or nothing: a new file takes the old one's place, with its mode and owner. Makes the folder. -errno. */
int conf_replace(const char *path, const char *text);

#endif
