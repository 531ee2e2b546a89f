#pragma once

int hidden(int value);
int other(int value);
