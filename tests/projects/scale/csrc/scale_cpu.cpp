#include "scale.h"

void scale_on_cpu(float* data, float factor, int64_t count) {
  for (int64_t index = 0; index < count; ++index) {
    data[index] *= factor;
  }
}
