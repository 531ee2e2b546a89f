#pragma once

int plain();
int by_macro();
int host();
